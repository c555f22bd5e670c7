"""`duebridge run`, and a line for each call of a script that moved envelopes: how much it touched.

python -m tests.faults.observed_worker FILE --config duebridge.yaml run
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from duebridge.cli import main
from duebridge.store.server.connection import Argument, Connection, Reply
from duebridge.store.server.scripts import Script

ACKED = 5  # the place of its count, behind time, cap, life, state and tokens


class Touched(NamedTuple):
    """What one call moved: ids, and bytes of records where it read any."""

    script: str
    ids: int
    size_bytes: int = 0


def touched(name: str, arguments: Sequence[Argument], answer: Any) -> Touched:
    """Return what a call moved, by its answer; of an ack, by what was asked."""
    if name in ("claim", "shunt"):
        return Touched(name, len(answer[2]), sum(map(len, answer[3])))
    if name in ("promote", "reclaim", "forget"):
        return Touched(name, answer[1])
    return Touched(name, int(arguments[ACKED]) if name == "ack" else 0)


def observe(note: Callable[[Touched], object]) -> None:
    """Have every call of this process noted from now on."""
    run = Connection.run

    def observed(
        self: Connection,
        called: Script,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        *patience: Any,
    ) -> Reply:
        reply = run(self, called, keys, arguments, *patience)
        note(touched(called.name, arguments, reply.value))
        return reply

    Connection.run = observed  # type: ignore[method-assign]


def read_touched(path: Path) -> list[Touched]:
    return msgspec.json.Decoder(Touched).decode_lines(path.read_bytes())


if __name__ == "__main__":
    with Path(sys.argv.pop(1)).open("ab", buffering=0) as file:
        encoder = msgspec.json.Encoder()
        observe(lambda each: each.ids and file.write(encoder.encode(each) + b"\n"))
        sys.exit(main())
