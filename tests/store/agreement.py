"""Whether a shard holds what the model says, byte for byte as far as the model goes."""

from typing import Any

from duebridge.store.record import read_flight, read_record
from tests.store.invariants import NOBODY, STATES, Snapshot
from tests.store.model import Life, Model


def check_agreement(found: Snapshot, model: Model) -> None:
    """Assert that states, scores, records, flights, memories and the hold are the model's."""
    scores = {name.decode(): (state, score) for state in STATES for name, score in found[state]}
    assert scores == {name: (life.state, life.score) for name, life in model.lives.items()}
    for name, life in model.lives.items():
        assert kept(found, name.encode()) == expected_of(life), name
    assert sorted(map(memory, found["memory"].items())) == expected_memories(model)
    held_since = found["meta"].get(b"held_since")
    assert (None if held_since is None else int(held_since)) == model.held_since


def kept(found: Snapshot, id: bytes) -> dict[str, Any]:
    record = read_record(found["envelopes"][id])
    packed = found["flight"].get(id, b"")
    flight = read_flight(packed)
    token = packed[:12] if packed and packed[:12] != NOBODY else None
    counts = (flight.attempt, flight.failures, flight.retries, flight.expiries, flight.singles)
    marks = (flight.unsure, flight.cancel, flight.shunting, flight.reason)
    return {
        "record": (record.due_at_ms, record.expires_at_ms or None, record.remember_ms),
        "flight": (bool(packed), token, counts, marks),
    }


def expected_of(life: Life) -> dict[str, Any]:
    counts = (life.attempt, life.failures, life.retries, life.expiries, life.singles)
    marks = (life.is_unsure, life.is_cancelled, life.is_shunting, life.reason)
    return {
        "record": (life.due, life.expires, life.content.remember),
        "flight": (life.has_flown, life.token, counts, marks),
    }


def memory(item: tuple[bytes, bytes]) -> tuple[Any, ...]:
    """Return the name of a memory, and what the model says of such a one; calls have no names."""
    name, value = item
    until, first, second = (int.from_bytes(value[at : at + 6]) for at in (0, 6, 12))
    match name[:1]:
        case b"t":
            return name.decode(), until, first, second, int.from_bytes(value[18:24])
        case b"r":
            return name.decode(), until, first
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
                expected.append((name, until, value[0], value[1] or 0, value[2]))
            case "r":
                expected.append((name, until, value[0]))
            case "d":
                expected.append((name, until, *value))
            case "x":
                expected.append((name, until))
            case _:
                expected.append(("c", until))
    return sorted(expected)
