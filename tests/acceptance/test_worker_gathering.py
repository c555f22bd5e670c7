"""A trickle is gathered into batches, a backlog is not kept waiting, and nobody polls for it."""

from math import ceil

from duebridge.worker.shard import BACKLOG, GATHER_S
from tests.acceptance.floor import Floor

GATHER_MS = ceil(GATHER_S * 1000)  # the floor's clock turns by whole ms


def test_envelope_due_just_after_a_promotion_waits_for_the_next_one(floor: Floor) -> None:
    floor.schedule("a")
    floor.schedule("b", "c", delay="1001ms")
    floor.turn(1000)
    floor.turn(GATHER_MS - 1)
    assert floor.arrived() == ["a"]
    floor.turn(1)
    assert floor.arrived() == ["a", "b", "c"]


def test_envelope_due_long_after_the_last_promotion_does_not_wait(floor: Floor) -> None:
    floor.schedule("a")
    floor.schedule("b", delay="2s")
    floor.turn(1000)
    floor.turn(1000)
    assert floor.arrived() == ["a", "b"]


def test_backlog_is_promoted_without_a_pause(floor: Floor) -> None:
    ids = [f"id{number}" for number in range(BACKLOG)]
    floor.schedule(*ids)
    floor.schedule("late", delay="1001ms")
    floor.turn(1000)
    floor.turn(1)
    assert floor.arrived()[-1] == "late"


def test_sleep_while_envelopes_gather_lasts_until_the_next_promotion(floor: Floor) -> None:
    floor.schedule("a")
    floor.schedule("b", delay="1001ms")
    floor.turn(1000)
    floor.advance(1)
    assert 0 < floor.stations["r"].sleep_s() <= GATHER_S
