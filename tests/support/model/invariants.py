"""What must hold of a shard between any two calls."""

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Any, TypeAlias

from duebridge.store.journal import read_entry
from duebridge.store.wire.journal_entry import EntryColumns, read_entry_columns
from duebridge.store.wire.poll import NONE, Poll, Stats
from duebridge.store.wire.record import read_flight
from duebridge.store.wire.replies import HistogramReply

STATES = ("pending", "ready", "suspect", "unack", "retry", "dead")
NOBODY = bytes(12)
BEYOND_ANY_TIME = 2**52  # +inf: no dead-letter target yet; 2^52: it rejects the letter
LONGEST_MS = 365 * 86_400_000
KINDS_WITH_ATTEMPT = {"delivered", "shunted", "retried", "cancelled", "dropped", "expired", "dead"}
KINDS_WITH_REASON = {"expired", "dead"}

Snapshot: TypeAlias = dict[str, Any]


def check_all(found: Snapshot, now_ms: int) -> None:
    """Assert every invariant of a snapshot."""
    scores = {name: dict(found[name]) for name in STATES}
    check_one_state_each(scores, found)
    check_flights(scores, found, now_ms)
    check_journal(found)


def check_one_state_each(scores: dict[str, dict[bytes, float]], found: Snapshot) -> None:
    places = [name for state in STATES for name in scores[state]]
    assert len(places) == len(set(places)), "an id is in two states"
    assert set(places) == set(found["envelopes"]), "a record without its id, or the other way"
    assert set(found["flight"]) <= set(places), "a flight of nobody"


def check_flights(scores: dict[str, dict[bytes, float]], found: Snapshot, now_ms: int) -> None:
    flights = found["flight"]
    must_have = {name for state in ("suspect", "unack", "retry", "dead") for name in scores[state]}
    assert must_have <= set(flights), "no flight where there must be one"
    for name, packed in flights.items():
        flight = read_flight(packed)
        is_leased = name in scores["unack"] or flight.shunting
        assert (packed[:12] != NOBODY) == is_leased, (name, flight)
        assert not flight.shunting or name in scores["dead"], (name, flight)
        assert not flight.cancel or name in scores["unack"], (name, flight)
        assert bool(flight.reason) == (name in scores["dead"]), (name, flight)
    for deadline in scores["unack"].values():
        assert abs(deadline - now_ms) < LONGEST_MS, "a score in unack is a deadline"


def check_journal(found: Snapshot) -> None:
    entries = [read_entry(*each) for each in found["journal"]]
    last = int(found["meta"].get(b"journal_sequence", 0))
    assert [each.before for each in entries[1:]] == [each.sequence for each in entries[:-1]]
    assert not entries or entries[-1].sequence == last
    for each in entries:
        assert (each.found is not None) == (each.kind == "renewed"), each
    total = int(found["meta"].get(b"journal_dropped", 0))
    for each in entries:
        for _, note in each.items:
            assert (note.attempt is not None) == (each.kind in KINDS_WITH_ATTEMPT), each
            assert (note.reason is not None) == (each.kind in KINDS_WITH_REASON), each
        total += each.size + 48
        assert each.total_bytes == total, each
    for stored, each in zip(found["journal"], entries, strict=True):
        assert by_item(read_entry_columns(*stored)) == [
            (name, note.due_at_ms, note.attempt, note.reason) for name, note in each.items
        ]
    assert total == int(found["meta"].get(b"journal_bytes", 0))


def by_item(columns: EntryColumns) -> list[tuple[Any, ...]]:
    found = (columns.ids, columns.due_at_ms, columns.attempts, columns.reasons)
    return list(zip(*found, strict=True))


def poll_of(found: Snapshot, now_ms: int) -> Poll:
    """Return the poll that a snapshot has to answer."""
    counts = [len(found[name]) for name in STATES]
    timed = ("pending", "suspect", "unack", "retry", "dead")
    firsts = [first_score(found[name]) for name in timed]
    hydrated_until = int(found["meta"].get(b"hydrated_until", NONE))
    forget = first_score(found["forget"])
    return Poll(now_ms, *counts, *firsts, forget, hydrated_until)


def first_score(members: list[tuple[bytes, float]]) -> int:
    scores = [score for _, score in members if score < BEYOND_ANY_TIME]
    return int(min(scores, default=NONE))


def due_of(member: bytes, found: Snapshot) -> int:
    """The due instant in a flight: a retry's score is its next attempt."""
    packed: bytes = found["flight"].get(member, b"")
    return int.from_bytes(packed[12:18]) if packed else NONE


def check_stats(found: Snapshot, stats: Stats, now_ms: int) -> None:
    """Assert that what people see is what a snapshot has."""
    names = ("pending", "ready", "suspect", "retry")
    scores = [score for name in names for _, score in found[name]]
    dues = [int(score) for name in ("pending", "ready") for _, score in found[name][:1]]
    dues += [
        due_of(each, found)
        for name in ("ready", "suspect", "retry", "unack")
        for each, _ in found[name][:100]
    ]
    oldest = min((due for due in dues if 0 <= due <= now_ms), default=NONE)
    due = [sum(score <= now_ms + ms for score in scores) for ms in (0, 60_000, 300_000)]
    counts = (len(found["journal"]), len(found["memory"]))
    names = (b"generation", b"generation_skipped", b"journal_sequence", b"journal_skipped")
    last, skipped, newest, jumped = (int(found["meta"].get(name, 0)) for name in names)
    meta = (last - skipped, newest - jumped)
    rejected = sum(BEYOND_ANY_TIME <= score < inf for _, score in found["dead"])
    expected = Stats(poll_of(found, now_ms), *due, oldest, *counts, *meta, NONE, rejected)
    assert stats._replace(journal_kept=NONE) == expected


def check_histogram(found: Snapshot, reply: HistogramReply, edges_ms: Sequence[int]) -> None:
    """Assert that each bucket counts the scores from its edge to before the next."""
    for name, counts in (("pending", reply.pending), ("retry", reply.retry)):
        scores = [score for _, score in found[name]]
        assert counts == [
            sum(low <= score < high for score in scores) for low, high in pairwise(edges_ms)
        ], name
