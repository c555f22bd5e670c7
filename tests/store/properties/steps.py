"""What must hold between a shard before one call and after it, and between it and the model.

The journal says of every envelope what became of it: each of its kinds is a set of moves, and a
move that it is silent about is one of those between pending and unack.
"""

from itertools import product
from typing import Any, NamedTuple

from duebridge.store.journal import JournalEntry, Note, read_entry
from duebridge.store.wire.record import Flight, Record, read_flight, read_record
from tests.store.properties.lives import Life
from tests.store.properties.model import Model
from tests.support.model.invariants import NOBODY, STATES, Snapshot

GONE = ""
WAITING = ("pending", "ready", "suspect", "retry")
READY = ("ready", "suspect")
SILENT = {
    *product(("pending", "retry"), (*READY, "unack")),  # a claim may promote first
    *product(READY, ("unack",)),
    *product(("unack",), READY),
}
MOVES = {
    "accepted": {(GONE, "pending")},
    "replaced": set(product((*WAITING, "dead"), ("pending",))),
    "rescheduled": set(product(WAITING, ("pending",))),
    "replayed": {("dead", "pending")},
    "retried": {("unack", "retry")},
    "expired": set(product(WAITING, ("dead",))),
    "dead": {("unack", "dead")},
    "delivered": {("unack", GONE)},
    "shunted": {("dead", GONE)},
    "dropped": {("dead", GONE)},
    "demoted": {("pending", GONE)},
    "cancelled": set(product((*WAITING, "unack", GONE), (GONE,))),  # gone: to the cold tier
}
NEW_GENERATION = {"accepted", "replaced", "rescheduled", "replayed"}
NEW_LIFE = {"accepted", "replaced"}
ENDS = {b"\0": "duplicate", b"\1": "cancelled", b"\2": "dead"}
COUNTERS = (b"generation", b"claims", b"journal_sequence", b"journal_bytes")


class IdSnapshot(NamedTuple):
    """One id in a snapshot; the record is None where the id is not there."""

    state: str
    record: Record | None
    flight: Flight


def seen(found: Snapshot) -> dict[str, IdSnapshot]:
    """Return what a snapshot has of each id."""
    records, flights = found["envelopes"], found["flight"]
    return {
        name.decode(): IdSnapshot(
            state, read_record(records[name]), read_flight(flights.get(name, b""))
        )
        for state in STATES
        for name, _ in found[state]
    }


def check_step(before: Snapshot, after: Snapshot, now_ms: int) -> None:
    """Assert that what changed is what the new entries of the journal say, and no more."""
    for name in COUNTERS:
        assert int(after["meta"].get(name, 0)) >= int(before["meta"].get(name, 0)), name
    said = entries_between(before, after)
    was, is_now = seen(before), seen(after)
    nobody = IdSnapshot(GONE, None, read_flight(b""))
    for name in {*was, *is_now, *said}:
        old, new = was.get(name, nobody), is_now.get(name, nobody)
        all_said = said.get(name, [])
        entry, note = all_said[-1] if all_said else (None, None)
        assert {each.kind for each, _ in all_said[1:]} <= {"replaced"}, f"{name}: {all_said}"
        kind = all_said[0][0].kind if all_said else ""
        check_move(name, kind, old, new)
        check_generation(name, kind, old, new, int(before["meta"].get(b"generation", 0)))
        check_attempt(name, kind, old, new)
        if entry and note:
            assert entry.at_ms == now_ms, entry
            check_note(name, kind, note, old, new)
    given = sum(entry.kind in NEW_GENERATION for each in said.values() for entry, _ in each)
    counted = [int(found["meta"].get(b"generation", 0)) for found in (before, after)]
    assert counted[1] - counted[0] == given, "the counter is how often a due instant was given"
    generations = [each.record.generation for each in is_now.values() if each.record]
    assert len(set(generations)) == len(generations), "two envelopes of one generation"


def entries_between(
    before: Snapshot, after: Snapshot
) -> dict[str, list[tuple[JournalEntry, Note]]]:
    """Return what was said of each id since: once, unless a batch replaces what it brought."""
    last = int(before["meta"].get(b"journal_sequence", 0))
    said: dict[str, list[tuple[JournalEntry, Note]]] = {}
    for each in after["journal"][len(before["journal"]) :]:
        entry = read_entry(*each)
        assert entry.sequence > last
        for name, note in entry.items:
            said.setdefault(name, []).append((entry, note))
    return said


def check_move(name: str, kind: str, old: IdSnapshot, new: IdSnapshot) -> None:
    move = (old.state, new.state)
    if kind:
        assert move in MOVES[kind], f"{name} is journalled {kind}, but went {move}"
    else:
        assert old.state == new.state or move in SILENT, f"{name} went {move}, not journalled"


def check_generation(name: str, kind: str, old: IdSnapshot, new: IdSnapshot, counter: int) -> None:
    """A generation is never used again: a new one comes from the counter, as it then stood."""
    if not new.record:
        return
    if kind in NEW_GENERATION:
        assert new.record.generation > counter, f"{name} has a generation that was given before"
    else:
        assert new.record.generation == (old.record or new.record).generation, name


def check_attempt(name: str, kind: str, old: IdSnapshot, new: IdSnapshot) -> None:
    """An attempt rises by one at every claim, and never falls within a life."""
    if kind in NEW_LIFE or not new.record:
        return
    is_claimed = new.state == "unack" and old.state != "unack"
    assert new.flight.attempt == old.flight.attempt + is_claimed, f"attempt of {name}: {old}, {new}"


def check_note(name: str, kind: str, note: Note, old: IdSnapshot, new: IdSnapshot) -> None:
    record = new.record or old.record
    assert record is not None or kind == "cancelled"
    assert record is None or note.due_at_ms == record.due_at_ms, f"due of {name} in {kind}"
    assert note.attempt in (None, old.flight.attempt), f"attempt of {name} in {kind}"
    assert note.reason in (None, new.flight.reason), f"reason of {name} in {kind}"


def check_agreement(found: Snapshot, model: Model) -> None:
    """Assert that states, scores, records, flights and memories are the model's."""
    scores = {name.decode(): (state, score) for state in STATES for name, score in found[state]}
    assert scores == {name: (life.state, life.score) for name, life in model.lives.items()}
    for name, life in model.lives.items():
        assert kept(found, name.encode()) == expected_of(life), name
    assert sorted(map(memory, found["memory"].items())) == expected_memories(model)


def kept(found: Snapshot, id: bytes) -> dict[str, Any]:
    record = read_record(found["envelopes"][id])
    packed = found["flight"].get(id, b"")
    flight = read_flight(packed)
    token = packed[:12] if packed and packed[:12] != NOBODY else None
    counts = (flight.attempt, flight.failures, flight.retries, flight.expiries, flight.singles)
    marks = (flight.unsure, flight.cancel, flight.shunting, flight.reason)
    tail = (flight.held_since_ms, flight.letters)
    return {
        "record": (record.due_at_ms, record.expires_at_ms or None, record.remember_ms),
        "flight": (bool(packed), token, counts, marks, tail),
    }


def expected_of(life: Life) -> dict[str, Any]:
    counts = (life.attempt, life.failures, life.retries, life.expiries, life.singles)
    marks = (life.is_unsure, life.is_cancelled, life.is_shunting, life.reason)
    return {
        "record": (life.due, life.expires, life.content.remember),
        "flight": (life.has_flown, life.token, counts, marks, (life.held_since, life.letters)),
    }


def memory(item: tuple[bytes, bytes]) -> tuple[Any, ...]:
    """Return the name of a memory, and what the model says of such a one; calls have no names."""
    name, value = item
    until, first, second = (int.from_bytes(value[at : at + 6]) for at in (0, 6, 12))
    match name[:1]:
        case b"t":
            cancelled, ended = (int.from_bytes(value[at : at + 6]) for at in (18, 24))
            return name.decode(), until, first, second, cancelled, ended
        case b"r":
            return name.decode(), until, first, ENDS[value[20:]]
        case b"e":
            ends = range(6, len(value), 14)
            return name.decode(), until, *(int.from_bytes(value[at : at + 6]) for at in ends)
        case b"d":
            return name.decode(), until, first, second, int.from_bytes(value[18:24])
        case b"x":
            return name.decode(), until
        case _:
            return "c", until


def expected_memories(model: Model) -> list[tuple[Any, ...]]:
    expected: list[tuple[Any, ...]] = []
    for name, (until, value) in model.memories.items():
        match name[0]:
            case "t":
                expected.append((name, until, value[0], value[1] or 0, *value[2:]))
            case "r":
                expected.append((name, until, value[0], value[2]))
            case "e":
                expected.append((name, until, *(at for at, _ in value)))
            case "d":
                expected.append((name, until, *value))
            case "x":
                expected.append((name, until))
            case _:
                expected.append(("c", until))
    return sorted(expected)
