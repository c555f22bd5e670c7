"""Append-only histories on disk: one file a process or thread, one JSON line an event."""

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from duebridge.audit import Event, Op, Phase

SUFFIX = ".history.jsonl"


class Historian:
    """Writes one history. A line is handed to the system before `write` returns."""

    def __init__(self, home: Path, name: str) -> None:
        self._file = (home / f"{name}{SUFFIX}").open("ab", buffering=0)
        self._encoder = msgspec.json.Encoder()

    def write(self, events: Iterable[Event]) -> None:
        self._file.write(self._encoder.encode_lines(list(events)))

    def note(self, op: Op, phase: Phase, id: str, *, due_at_ms: int = 0, answer: str = "") -> None:
        self.write([Event(now_ms(), op, phase, id, due_at_ms, answer)])

    def close(self) -> None:
        self._file.close()


def now_ms() -> int:
    return int(time.time() * 1000)


def read_histories(home: Path) -> list[Event]:
    """Return the events of all processes; those of one id are in one process' order."""
    decoder = msgspec.json.Decoder(Event)
    return [
        event
        for path in sorted(home.glob(f"*{SUFFIX}"))
        for event in decoder.decode_lines(path.read_bytes())
    ]
