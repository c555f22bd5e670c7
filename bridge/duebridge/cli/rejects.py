"""Refused lines, kept in a file: each as it came, its reason as a remark above it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from duebridge.cli.lines import MAX_LINE_BYTES, Line
from duebridge.cli.output import printable


class Rejects:
    """Takes refused lines; without a file it forgets them."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file

    def keep(self, line: Line, why: str) -> None:
        """Write a line and its reason; of one that is too long, only the reason."""
        if self._file is None:
            return
        self._file.write(f"# line {line.number}: {printable(why)}\n".encode())
        if len(line.text) <= MAX_LINE_BYTES:
            self._file.write(line.text + b"\n")
        self._file.flush()


@contextmanager
def opened_rejects(path: Path | None) -> Iterator[Rejects]:
    """Give a new file at `path`; raises `OSError` before anything is sent."""
    if path is None:
        yield Rejects(None)
        return
    with path.open("wb") as file:
        yield Rejects(file)
