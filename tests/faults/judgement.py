"""Histories on disk, what a run leaves in the store, and the verdict on both."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from duebridge.admin.listing import Listing
from duebridge.audit import (
    AuditVerdict,
    Bounds,
    HistoryEvent,
    Op,
    Phase,
    audit,
    history_of,
    whole_histories,
)
from duebridge.bench.meter import CallCounter, Meter
from duebridge.store.connection import Connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.routes import RouteStore
from tests.faults.scenario import Scenario

SUFFIX = ".history.jsonl"
LASTING_KEYS = {"journal", "meta"}  # of a shard that is empty
# What a server takes for itself meanwhile, half of it for statistics of commands new to it.
SLACK_BYTES = 1024 * 1024
LATER_MS = 4_102_444_800_000  # the year 2100


class Historian:
    """Writes one history. A line is handed to the system before `write` returns."""

    def __init__(self, home: Path, name: str) -> None:
        self._file = (home / f"{name}{SUFFIX}").open("ab", buffering=0)
        self._encoder = msgspec.json.Encoder()

    def write(self, events: Iterable[HistoryEvent]) -> None:
        self._file.write(self._encoder.encode_lines(list(events)))

    def note(self, op: Op, phase: Phase, id: str, *, due_at_ms: int = 0, answer: str = "") -> None:
        self.write([HistoryEvent(now_ms(), op, phase, id, due_at_ms, answer)])

    def close(self) -> None:
        self._file.close()


def now_ms() -> int:
    return int(time.time() * 1000)


def read_histories(home: Path) -> list[HistoryEvent]:
    """Return the events of all processes; those of one id are in one process' order."""
    decoder = msgspec.json.Decoder(HistoryEvent)
    return [
        event
        for path in sorted(home.glob(f"*{SUFFIX}"))
        for event in decoder.decode_lines(path.read_bytes())
    ]


class Leftovers(NamedTuple):
    """Keys, the journal among them, and how many bytes more than before the rest takes."""

    keys: list[str]
    journal_bytes: int
    more_bytes: int

    def violations(self) -> dict[str, list[str]]:
        """Return the keys and the memory that no live envelope needs."""
        keys = [key for key in self.keys if key.rsplit(":", 1)[1] not in LASTING_KEYS]
        more = [f"{self.more_bytes} bytes"] if self.more_bytes > SLACK_BYTES else []
        found = {"left_over_keys": keys, "left_over_memory": more}
        return {kind: what for kind, what in found.items() if what}


def stored_bytes(connection: Connection) -> int:
    """Return the memory of what is stored, without the slow log, which the server counts to it.

    A server that is nearly empty may deduct more for its buffers than it has: less than nothing.
    """
    client: Any = connection.client
    client.slowlog_reset()
    return signed(Meter(connection, CallCounter()).dataset_bytes())


def signed(unsigned: int) -> int:
    """Return a number of 64 bits that went below zero as what it is."""
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


def leftovers(connection: Connection, shard: Shard, before_bytes: int) -> Leftovers:
    """Remove the journal, and return what there was and what else is left in the namespace."""
    client: Any = connection.client
    _forget_answers(connection, shard)
    found = client.scan_iter(match=f"{{{shard.namespace}:*", count=1000)
    keys = [key.decode() for key in found]
    with_journal = stored_bytes(connection)
    client.unlink(f"{shard.tag}:journal")
    without = stored_bytes(connection)
    return Leftovers(keys, with_journal - without, without - before_bytes)


def _forget_answers(connection: Connection, shard: Shard) -> None:
    """Let go of what is kept for repeated calls, as the store does by itself after a minute."""
    store = DelayStore(connection, shard, now_ms=lambda: LATER_MS)
    while store.forget()[1]:
        pass


def dump(home: Path, route: RouteStore) -> None:
    """Write down every envelope that the store still has, and its state."""
    entries = [found.entry for found in Listing(route.shards[0].shard.route, route.shards).walk()]
    history = Historian(home, "store")
    history.write(
        HistoryEvent(now_ms(), Op.STORE, Phase.OK, each.id, answer=each.state) for each in entries
    )
    history.close()


def judge(
    home: Path, scenario: Scenario, faults: int, left: Leftovers
) -> tuple[AuditVerdict, dict[str, list[str]]]:
    """Return the verdict, and the ids by what is wrong with them; so many faults were tried."""
    events = read_histories(home)
    verdict = audit(history_of(events))
    bounds = Bounds(
        duplicates=scenario.window * scenario.workers * faults * scenario.may_repeat,
        dead=verdict.accepted * scenario.may_bury,
    )
    violations = verdict.violations(bounds)
    violations |= left.violations()
    if violations:
        _tell(home, events, violations)
    return verdict, violations


def _tell(home: Path, events: list[HistoryEvent], violations: Mapping[str, list[str]]) -> None:
    ids = {each for found in violations.values() for each in found}
    lines = [
        msgspec.json.encode(event).decode()
        for story in whole_histories(events, ids).values()
        for event in sorted(story, key=lambda event: event.at_ms)
    ]
    (home / "violations.jsonl").write_text("\n".join(lines) + "\n")
