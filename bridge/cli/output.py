"""What commands print: results to standard output, everything else to standard error.

Text that came from outside is made printable first: no stored error message and no id can drive
the terminal, and one line stays one line.
"""

import os
from collections.abc import Iterable, Sequence
from enum import StrEnum
from io import StringIO
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

STDOUT, STDERR = 1, 2  # as numbers: a process may be started without them
WIDE = 100_000  # columns where nobody looks: a pipe gets no line folded


class Output(StrEnum):
    """The form of a result."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", help="A table for people, or JSON: one object a line.")
]


class OutputClosed(Exception):
    """Nobody reads our output any more."""


def write(line: str | bytes) -> None:
    """Write a line of the result; raises `OutputClosed` where its reader went away."""
    try:
        typer.echo(line)
    except BrokenPipeError as error:
        raise OutputClosed from error


def write_json(value: Any) -> None:
    """Write a value as one line of JSON, in UTF-8 whatever the locale."""
    write(msgspec.json.encode(value))


def write_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rows under a header; colored only on a terminal, and never with NO_COLOR."""
    is_terminal = os.isatty(STDOUT)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=not is_terminal, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = _console(is_terminal)
    console.print(table)
    for line in console.file.getvalue().splitlines():  # type: ignore[attr-defined]
        write(line.rstrip())


def _console(is_terminal: bool) -> Console:
    is_colored = is_terminal and not os.environ.get("NO_COLOR")
    return Console(
        file=StringIO(),
        force_terminal=is_terminal,
        color_system="auto" if is_colored else None,
        width=None if is_terminal else WIDE,
    )


def complain(line: str) -> None:
    """Write one line to standard error, where there is still one."""
    try:
        typer.echo(printable(line), err=True)
    except BrokenPipeError:
        _discard(STDERR)


def discard_output() -> None:
    """Let what is still to be written to standard output vanish, at exit too."""
    _discard(STDOUT)


def _discard(descriptor: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def printable(text: str) -> str:
    r"""Return text with every control character escaped: a newline becomes \n."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
