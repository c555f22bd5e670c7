"""Ids on standard input: an object a line, as `ls` and `events` print them."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from duebridge.cli.lines import MAX_LINE_BYTES, Line, opened_stdin, read_batches
from duebridge.errors import EnvelopeError

LINES = 250
ENDED = frozenset({"delivered", "shunted", "cancelled", "dropped", "replaced"})


class Named(msgspec.Struct, frozen=True):
    """What counts of a line: an envelope's id and route, of an event also its kind and instant.

    The line at the end of a page has none of them.
    """

    id: str = ""
    route: str = ""
    kind: str = ""
    at_ms: int = 0


class Wanted(NamedTuple):
    """Which lines are meant: of a route; where an instant is given, of what ended then or later."""

    route: str
    ended_since_ms: int | None

    def has(self, named: Named) -> bool:
        """Whether a line is one of them; one that names no route is."""
        if not named.id or named.route not in ("", self.route):
            return False
        since_ms = self.ended_since_ms
        return since_ms is None or (named.kind in ENDED and named.at_ms >= since_ms)


_decoder = msgspec.json.Decoder(Named)


def read_ids(wanted: Wanted) -> Iterator[str]:
    """Yield the ids of lines that are wanted, as they arrive; all others are passed over.

    Raises `EnvelopeError` at a line that is no such object; what came before it was yielded.
    """
    with opened_stdin() as stream:
        for lines in read_batches(stream, LINES):
            for line in lines:
                if wanted.has(named := _named(line)):
                    yield named.id


def _named(line: Line) -> Named:
    if not line.text.strip():
        return Named()
    try:
        if len(line.text) > MAX_LINE_BYTES:
            raise msgspec.DecodeError(f"more than {MAX_LINE_BYTES} bytes")
        return _decoder.decode(line.text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        expected = 'expected an object with an id, such as {"id": "order-42"}'
        raise EnvelopeError(f"line {line.number}: {expected}: {error}") from error
