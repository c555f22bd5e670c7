"""What outlives an envelope: remembered ids, and tombstones for the cold tier."""

from collections.abc import Callable
from typing import Any

import pytest

from duebridge.ports.publisher import Reason
from duebridge.store.wire.packed_row import PackedRow, pack_row
from duebridge.store.wire.transitions import ScheduleMode
from tests.store.conftest import Opened
from tests.support.desk import (
    DAY_MS,
    NOW_MS,
    YEAR_MS,
    Desk,
    burial,
    envelope,
    noted,
    remembering,
)

KEEP_MS = 3_600_000


def kept(id: str = "a", body: bytes = b"x"):
    return envelope(id, "1s", body=body, remember="1h")


def deliver(desk: Desk) -> None:
    claim = desk.unack(kept())
    desk.store.ack(remembering(claim))


def deliver_after_a_retry(desk: Desk) -> None:
    desk.retry(kept())
    desk.clock.advance(1000)
    claim = desk.claim_all()
    desk.store.ack(remembering(claim))


def shunt(desk: Desk) -> None:
    claim = desk.shunt(kept())
    desk.store.ack(remembering(claim), shunted=True)


def cancel(desk: Desk) -> None:
    desk.pending(kept())
    assert desk.store.cancel("a") == "cancelled"


def cancel_in_flight(desk: Desk) -> None:
    claim = desk.unack(kept())
    assert desk.store.cancel("a") == "in_flight"
    desk.store.bury(claim.token, [burial("a", Reason.TOO_LARGE)])


def drop(desk: Desk) -> None:
    desk.dead(kept())
    assert desk.store.drop(["a"]) == ["dropped"]


ENDS = {
    deliver: "duplicate",
    deliver_after_a_retry: "duplicate",
    shunt: "dead",
    drop: "dead",
    cancel: "cancelled",
    cancel_in_flight: "cancelled",
}
BECAME = pytest.mark.parametrize(
    ("end", "became"), ENDS.items(), ids=lambda each: getattr(each, "__name__", None)
)


@BECAME
def test_remembered_id_answers_what_became_of_it_for_its_time(
    desk: Desk, end: Callable[[Desk], None], became: str
) -> None:
    end(desk)
    assert desk.state_of("a") is None
    desk.clock.advance(KEEP_MS - 1)
    with desk.unchanged():
        assert desk.schedule(kept(), kept(), max_delay_ms=1) == [(became, NOW_MS + 1000)] * 2
    desk.clock.advance(1)
    desk.store.forget()
    assert desk.snapshot()["memory"] == {}
    desk.pending(kept())


# --- repeats that ask for a longer memory ---


def longer(body: bytes = b"x", remember_ms: int = DAY_MS) -> PackedRow:
    return pack_row(envelope("a", "1s", body=body), 0, least_ms=remember_ms)


def repeat(desk: Desk, row: PackedRow, mode: ScheduleMode = "hold") -> str:
    (answer,) = desk.store.schedule([row], max_delay_ms=YEAR_MS, mode=mode)
    return answer.status


def while_pending(desk: Desk) -> None:
    desk.pending(kept_as_usual())
    assert repeat(desk, longer()) == "duplicate"
    desk.clock.advance(1000)
    desk.store.ack(remembering(desk.claim_all()))


def while_leased(desk: Desk) -> None:
    claim = desk.unack(kept_as_usual())
    assert repeat(desk, longer()) == "duplicate"
    desk.store.ack(remembering(claim))


def while_its_dead_letter_is_leased(desk: Desk) -> None:
    claim = desk.shunt(kept_as_usual())
    assert repeat(desk, longer()) == "duplicate"
    desk.store.ack(remembering(claim), shunted=True)


def after_its_end(desk: Desk) -> None:
    assert repeat(desk, longer(remember_ms=KEEP_MS)) == "accepted"
    desk.clock.advance(1000)
    desk.store.ack(remembering(desk.claim_all()))
    assert repeat(desk, longer()) == "duplicate"


def in_one_call(desk: Desk) -> None:
    first = pack_row(kept_as_usual(), 0)
    answers = desk.store.schedule([first, longer()], max_delay_ms=YEAR_MS, mode="hold")
    assert [each.status for each in answers] == ["accepted", "duplicate"]
    desk.clock.advance(1000)
    desk.store.ack(remembering(desk.claim_all()))


def kept_as_usual():
    return envelope("a", "1s", body=b"x")


@pytest.mark.parametrize(
    ("repeated", "ended"),
    [
        (while_pending, "duplicate"),
        (while_leased, "duplicate"),
        (while_its_dead_letter_is_leased, "dead"),
        (after_its_end, "duplicate"),
        (in_one_call, "duplicate"),
    ],
)
def test_repeat_that_names_a_longer_time_has_the_id_remembered_for_it(
    desk: Desk, repeated: Callable[[Desk], None], ended: str
) -> None:
    repeated(desk)
    assert desk.state_of("a") is None
    desk.clock.advance(DAY_MS - 2000)
    assert repeat(desk, longer()) == ended
    desk.clock.advance(DAY_MS)
    desk.store.forget()
    assert repeat(desk, longer()) == "accepted", "and no longer"


@pytest.mark.parametrize("mode", ["hold", "refuse"])
def test_repeat_that_names_a_shorter_time_changes_nothing(desk: Desk, mode: ScheduleMode) -> None:
    assert repeat(desk, longer()) == "accepted"
    with desk.unchanged():
        assert repeat(desk, longer(remember_ms=1000), mode) == "duplicate"
        assert repeat(desk, longer(b"other", 2 * DAY_MS), mode) == "conflict"
    desk.clock.advance(1000)
    desk.store.ack(remembering(desk.claim_all()))
    with desk.unchanged():
        assert repeat(desk, longer(remember_ms=1000), mode) == "duplicate"


def test_cancel_of_what_a_repeat_has_remembered_longer_takes_effect(desk: Desk) -> None:
    claim = desk.unack(kept_as_usual())
    assert repeat(desk, longer()) == "duplicate"
    assert desk.store.get("a").flight.cancel is False
    assert desk.store.cancel("a") == "in_flight"
    desk.store.release(claim.token, ["a"])
    desk.clock.advance(DAY_MS - 2000)
    assert repeat(desk, longer()) == "cancelled"


@BECAME
@pytest.mark.parametrize("body", [b"x", b"other"])
def test_replace_under_a_remembered_id_begins_a_new_life(
    desk: Desk, end: Callable[[Desk], None], became: str, body: bytes
) -> None:
    end(desk)
    due = desk.clock() + 1000
    assert desk.schedule(kept(body=body), mode="replace") == [("replaced", due)]
    entry = desk.last_entry()
    assert (entry.kind, noted(entry)) == ("accepted", [("a", (due, None, None))]), (
        "a life of its own"
    )
    desk.check()
    desk.clock.advance(1000)
    (leased,) = desk.claim_all().leased
    assert (leased.content.body, leased.flight.attempt) == (body, 1)


@BECAME
def test_replace_by_a_job_brings_nothing_back(
    desk: Desk, end: Callable[[Desk], None], became: str
) -> None:
    end(desk)
    with desk.unchanged():
        (answer,) = desk.schedule(kept(), mode="replace_living")
    assert answer.status == became
    (other,) = desk.schedule(kept(body=b"other"), mode="replace_living")
    assert other.status == "accepted"


def test_remembered_id_with_other_content_is_accepted(desk: Desk) -> None:
    cancel(desk)
    assert desk.schedule(kept(body=b"y")) == [("accepted", NOW_MS + 1000)]


@BECAME
def test_remembered_id_refuses_other_content_if_asked(
    desk: Desk, end: Callable[[Desk], None], became: str
) -> None:
    end(desk)
    due = NOW_MS + 1000
    with desk.unchanged():
        answers = desk.schedule(kept(), kept(body=b"other"), mode="hold")
    assert answers == [(became, due), ("conflict", due)]


def test_replace_under_a_remembered_id_may_be_refused(desk: Desk) -> None:
    cancel(desk)
    with desk.unchanged():
        (answer,) = desk.schedule(kept(), mode="replace", max_delay_ms=1)
    assert answer.status == "too_far"


def test_remembered_id_of_an_earlier_version_was_delivered(desk: Desk) -> None:
    """Version 0.2.0 kept no end."""
    cancel(desk)
    value = desk.client.hget(desk.key("memory"), "ra")
    desk.client.hset(desk.key("memory"), "ra", value[:20])
    assert desk.schedule(kept()) == [("duplicate", NOW_MS + 1000)]


def test_remember_off_forgets_at_once(desk: Desk) -> None:
    claim = desk.unack("a")
    assert remembering(claim)[0].remember_ms == 0
    desk.store.ack(remembering(claim))
    assert desk.snapshot()["memory"] == {}
    desk.pending("a")


def test_remember_of_a_stale_ack_changes_nothing(desk: Desk) -> None:
    claim = desk.unack(kept())
    desk.run_out()
    with desk.unchanged():
        assert desk.store.ack(remembering(claim)).stale == ["a"]


KEPT_BY: dict[str, Callable[[Desk, str], Any]] = {
    "remembered ids": lambda desk, name: (desk.pending(kept(name)), desk.store.cancel(name)),
    "answers": lambda desk, name: (desk.pending(name), desk.store.reschedule(name, "+9", YEAR_MS)),
    "tombstones": lambda desk, name: desk.again(cold_tier_ms=KEEP_MS).cancel(name),
}


@pytest.mark.parametrize("kind", KEPT_BY)
def test_memory_stays_small_where_no_worker_forgets(desk: Desk, kind: str) -> None:
    counts = []
    for n in range(60):
        KEPT_BY[kind](desk, f"id-{n}")
        desk.clock.advance(KEEP_MS // 10)
        counts.append(len(desk.check()["memory"]))
    assert max(counts) <= 21, "what is over stays without a worker"


def test_memory_drops_a_bounded_few_at_a_write_and_more_than_a_batch_adds(desk: Desk) -> None:
    names, others = ([f"{kind}{n}" for n in range(50)] for kind in "ab")
    desk.dead(*map(kept, names), *map(kept, others), kept("c"))
    assert desk.store.drop(names) == ["dropped"] * 50
    desk.clock.advance(KEEP_MS)
    assert desk.store.drop(["c"]) == ["dropped"]
    assert len(desk.snapshot()["memory"]) == 50 - 8 + 1
    desk.store.drop(others)
    assert len(desk.snapshot()["memory"]) == 51


@pytest.fixture
def cold(open_desk: Opened) -> Desk:
    """A desk of a route with a cold tier."""
    return open_desk(cold_tier_ms=YEAR_MS)


def hydrate(desk: Desk, generation: int, id: str = "a"):
    row = envelope(id, at=NOW_MS + DAY_MS)
    return desk.schedule(row, generations=[generation])


def demote(desk: Desk) -> int:
    """Leave the store as if `a` had gone to the cold tier; returns its generation there."""
    desk.pending(envelope("a", at=NOW_MS + DAY_MS))
    generation = desk.record_of("a").generation
    desk.client.hdel(desk.key("envelopes"), "a")
    desk.client.zrem(desk.key("pending"), "a")
    return generation


def test_cancel_of_a_cold_row_is_recorded_and_binds_it(cold: Desk) -> None:
    generation = demote(cold)
    assert cold.store.cancel("a") == "recorded"
    assert [each.status for each in hydrate(cold, generation)] == ["cancelled"]
    assert cold.check()["envelopes"] == {}
    entry = cold.last_entry()
    assert (entry.kind, noted(entry)) == ("cancelled", [("a", (NOW_MS + DAY_MS, 0, None))])


def test_cancelled_cold_row_that_comes_again_is_journalled_once(cold: Desk) -> None:
    generation = demote(cold)
    cold.store.cancel("a")
    row = envelope("a", at=NOW_MS + DAY_MS, remember="1h")
    answers = [cold.schedule(row, generations=[generation])[0].status for _ in range(2)]
    assert answers == ["cancelled", "cancelled"]
    assert [kind for kind, _ in cold.journal()].count("cancelled") == 1


def test_reschedule_of_a_cold_row_is_recorded_and_gives_its_due(cold: Desk) -> None:
    generation = demote(cold)
    answer = cold.store.reschedule("a", "+5000", YEAR_MS)
    assert answer == ("recorded", NOW_MS + 5000)
    assert hydrate(cold, generation) == [("accepted", NOW_MS + 5000)]
    assert cold.score_of("a", "pending") == NOW_MS + 5000


def test_reschedule_after_a_cancel_is_unknown_while_nothing_was_accepted_since(cold: Desk) -> None:
    generation = demote(cold)
    cold.store.cancel("a")
    with cold.unchanged():
        assert cold.store.reschedule("a", "+5000", YEAR_MS).status == "unknown"
    assert [each.status for each in hydrate(cold, generation)] == ["cancelled"]


def test_reschedule_after_a_cancel_reaches_a_later_life_and_no_earlier_one(cold: Desk) -> None:
    earlier = demote(cold)
    cold.store.cancel("a")
    later = demote(cold)
    assert cold.store.reschedule("a", "+5000", YEAR_MS).status == "recorded"
    assert [each.status for each in hydrate(cold, earlier)] == ["duplicate"], "it ended"
    assert hydrate(cold, later) == [("accepted", NOW_MS + 5000)]


def test_tombstone_binds_its_row_however_late_that_comes(cold: Desk) -> None:
    cold.store.note("hydrated_until", 1, "first")
    generation = demote(cold)
    cold.store.cancel("a")
    cold.clock.advance(2 * YEAR_MS)
    assert cold.store.forget()[1] == 1, "the answer of the call"
    assert [each.status for each in hydrate(cold, generation)] == ["cancelled"]


def test_remembered_id_is_told_before_a_tombstone(cold: Desk) -> None:
    cold.pending(kept())
    generation = cold.record_of("a").generation
    assert cold.store.cancel("a") == "cancelled", (
        "and leaves a tombstone: an earlier life may have rows"
    )
    answers = cold.schedule(kept(), generations=[generation])
    assert [each.status for each in answers] == ["cancelled"]
    assert [kind for kind, _ in cold.journal()].count("cancelled") == 1


def test_tombstone_binds_no_row_with_a_later_generation(cold: Desk) -> None:
    generation = demote(cold)
    assert cold.store.cancel("a") == "recorded"
    cold.pending("other")
    assert hydrate(cold, generation + 1) == [("accepted", NOW_MS + DAY_MS)]
