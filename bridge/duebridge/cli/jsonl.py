"""JSON lines on standard input: in batches, ids to cancel, and the file of refused lines."""

import os
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from duebridge.cli.output import printable
from duebridge.errors import EnvelopeError
from duebridge.jsonl import MAX_LINE_BYTES

FROM_STDIN = "-"  # in place of a body or an id
CHUNK_BYTES = 256 * 1024
ID_LINES = 250
ENDED = frozenset({"delivered", "shunted", "cancelled", "dropped", "replaced"})
ENDED_UNNAMED = {
    "gap": "a gap: {0.lost_entries} entries of shard {0.shard} are missing; what ended then stays",
    "purged": "the route was purged; what is there again stays, unless it is purged again",
}


class IdLine(msgspec.Struct, frozen=True):
    """An id as `ls` and `events` print it; a gap, a purge and the cursor of a page have none."""

    id: str = ""
    route: str = ""
    kind: str = ""
    at_ms: int = 0
    shard: int = 0
    lost_entries: int = 0


class IdFilter(NamedTuple):
    """Selects lines of a route; with an instant, only of envelopes that ended then or later."""

    route: str
    ended_since_ms: int | None

    def has(self, line: IdLine) -> bool:
        """Whether the line is selected; one without a route is."""
        if not line.id or line.route not in ("", self.route):
            return False
        return self.ended_since_ms is None or (line.kind in ENDED and self._is_since(line))

    def unnamed(self, line: IdLine) -> str:
        """Return why envelopes may have ended since the instant of which no line has the id."""
        if self.ended_since_ms is None or line.route != self.route or not self._is_since(line):
            return ""
        return ENDED_UNNAMED.get(line.kind, "").format(line)

    def _is_since(self, line: IdLine) -> bool:
        """Whether it happened then or later; of a gap before the first entry nobody knows."""
        return self.ended_since_ms is None or not 0 < line.at_ms < self.ended_since_ms


class Line(NamedTuple):
    """A line and its number, from 1."""

    number: int
    text: bytes


_id_decoder = msgspec.json.Decoder(IdLine)


def opened_stdin() -> BufferedReader:
    """Return standard input as bytes; raises `EnvelopeError` if the process has none."""
    if sys.stdin is None:  # its descriptor may be a socket by now
        raise EnvelopeError("standard input: expected it open; got it closed")
    return open(sys.stdin.fileno(), "rb", closefd=False)


def read_batches(stream: BufferedReader, size: int) -> Iterator[list[Line]]:
    """Yield lines as soon as they arrive, at most `size` at once; memory stays bounded.

    A byte order mark before the first is dropped: some programs write one.
    """
    number, rest = 1, b""
    while chunk := stream.read1(CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        rest = rest[: MAX_LINE_BYTES + 1]  # too long already: the rest of it may go
        lines = [_numbered(at, text) for at, text in enumerate(whole, number)]
        yield from (lines[at : at + size] for at in range(0, len(lines), size))
        number += len(lines)
    if rest:
        yield [_numbered(number, rest)]


def read_ids(wanted: IdFilter, refuse: Callable[[str], None]) -> Iterator[str]:
    """Yield the ids of the selected lines as they arrive.

    `refuse` is told of each line that is not such an object, and of each that says that ids are
    missing; it stops no other.
    """
    with opened_stdin() as stream:
        for lines in read_batches(stream, ID_LINES):
            for line in lines:
                try:
                    found = _id_line(line)
                except EnvelopeError as error:
                    refuse(str(error))
                    continue
                if why := wanted.unnamed(found):
                    refuse(f"line {line.number}: {why}")
                if wanted.has(found):
                    yield found.id


class RejectFile:
    """Keeps refused lines as they came, each below a comment with its reason."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file

    def keep(self, line: Line, why: str) -> None:
        """Write a line and its reason; of a line that is too long, only the reason.

        Raises `OSError`, which names the file.
        """
        if self._file is None:
            return
        text = line.text + b"\n" if len(line.text) <= MAX_LINE_BYTES else b""
        try:
            self._file.write(f"# line {line.number}: {printable(why)}\n".encode() + text)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._file.name) from error


@contextmanager
def opened_rejects(path: Path | None) -> Iterator[RejectFile]:
    """Give a new file at `path`, or one that keeps nothing.

    Raises `OSError`, and `EnvelopeError` for the file that standard input reads, first of all.
    """
    if path is None:
        yield RejectFile(None)
        return
    if _is_stdin(path):  # opening it would empty it
        raise EnvelopeError("--rejects: expected another file than the one of standard input")
    with path.open("wb", buffering=0) as file:
        yield RejectFile(file)


def _is_stdin(path: Path) -> bool:
    """Return whether standard input reads the file at a path, whatever its name."""
    if sys.stdin is None or not path.is_file():
        return False
    return os.path.samestat(path.stat(), os.fstat(sys.stdin.fileno()))


def _numbered(number: int, text: bytes) -> Line:
    return Line(number, text.removeprefix(BOM_UTF8) if number == 1 else text)


def _id_line(line: Line) -> IdLine:
    if not line.text.strip():
        return IdLine()
    try:
        if len(line.text) > MAX_LINE_BYTES:
            raise msgspec.DecodeError(f"more than {MAX_LINE_BYTES} bytes")
        return _id_decoder.decode(line.text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        expected = 'expected an object with an id, such as {"id": "order-42"}'
        raise EnvelopeError(f"line {line.number}: {expected}: {error}") from error
