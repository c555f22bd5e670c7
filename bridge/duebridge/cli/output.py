"""Prints results to standard output, and everything else to standard error.

Foreign text is escaped first: no stored error message and no id can control the terminal, and one
line stays one line.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from io import StringIO
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:  # rich and msgspec are imported when needed: a command's start has to be quick
    from rich.console import Console, RenderableType
    from rich.table import Table

STDIN, STDOUT, STDERR = 0, 1, 2  # as numbers: a process may be started without them
WIDE = 100_000  # columns of a pipe, so that no line is folded


class Output(StrEnum):
    """The form of a result."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", help="A table for people, or JSON with one object per line.")
]


class OutputClosed(Exception):
    """The reader of standard output is gone."""


def write(line: str | bytes) -> None:
    """Write a line of the result; raises `OutputClosed` if its reader is gone, and `OSError`."""
    try:
        typer.echo(line)
    except BrokenPipeError as error:
        raise OutputClosed from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


def write_json(value: Any) -> None:
    """Write a value as one line of JSON, in UTF-8 whatever the locale."""
    import msgspec

    from duebridge.envelope import target_as_dict

    write(msgspec.json.encode(value, enc_hook=target_as_dict))


def write_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rows under a header; colored only on a terminal, and never with NO_COLOR."""
    write_lines(table(columns, rows))


def write_blocks(blocks: Iterable[Iterable[tuple[str, str]]]) -> None:
    """Write things of many fields one below the other: a line a field, and an empty one between."""
    for place, block in enumerate(blocks):
        if place:
            write("")
        write_lines(table(("", ""), block, has_header=False))


def write_frames(frames: "Iterable[RenderableType]") -> None:
    """Write frames: refreshed in place on a terminal, else one below the other."""
    if not is_terminal(STDOUT):
        for frame in frames:
            write_lines(frame)
            write("")
        return
    from rich.live import Live

    with Live(console=_console(STDOUT, sys.stdout), auto_refresh=False) as live:
        for frame in frames:
            live.update(frame, refresh=True)


def write_lines(shown: "RenderableType") -> None:
    """Write what rich shows, colored only on a terminal, and never with NO_COLOR."""
    memory = StringIO()
    _console(STDOUT, memory).print(shown)
    for line in memory.getvalue().splitlines():
        write(line.rstrip())


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    has_header: bool = True,
    unbroken: Sequence[str] = (),
) -> "Table":
    """Return rows under a header; on a terminal only the cells of `unbroken` columns never wrap."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold", show_header=has_header)
    for column in columns:
        no_wrap = column in unbroken or not is_terminal(STDOUT)
        made.add_column(column, no_wrap=no_wrap, overflow="fold")
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made


def terminal_width() -> int:
    """Return the columns of the terminal that shows the results, `WIDE` if none does."""
    return _console(STDOUT, sys.stdout).width


def _console(descriptor: int, file: IO[str]) -> "Console":
    from rich.console import Console

    is_people = is_terminal(descriptor)
    return Console(
        file=file,
        force_terminal=is_people,
        no_color=bool(os.environ.get("NO_COLOR")),
        color_system="auto" if is_people and not os.environ.get("NO_COLOR") else None,
        width=None if is_people else WIDE,
    )


def is_terminal(descriptor: int) -> bool:
    """Whether a descriptor is a terminal; a closed one is not."""
    return os.isatty(descriptor)


@contextmanager
def shown_progress(what: str) -> Iterator[Callable[[int], None]]:
    """Give a function that counts work done, shown as progress on standard error.

    Shown only on a terminal, and not if the results go to a terminal too.
    """
    if not is_terminal(STDERR) or is_terminal(STDOUT):
        yield lambda _: None
        return
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=_console(STDERR, sys.stderr), transient=True) as progress:
        task = progress.add_task(what, total=None, rate="")

        def advance(count: int) -> None:
            speed = progress.tasks[0].speed
            progress.update(task, advance=count, rate=f"{speed:,.0f}/s" if speed else "")

        yield advance


def complain(line: str) -> None:
    """Write one line to standard error; drops it if it cannot be written."""
    try:
        typer.echo(printable(line), err=True)
    except OSError:
        _discard(STDERR)


def discard_output() -> None:
    """Drop everything written to standard output from now on, at exit too."""
    _discard(STDOUT)


@contextmanager
def ignoring_closed_output() -> Iterator[None]:
    """Drop the output once its reader is gone: a command that changes something goes on."""
    try:
        yield
    except OutputClosed:
        discard_output()


def _discard(descriptor: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def printable(text: str) -> str:
    r"""Return text with every control character escaped: a newline becomes \n."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
