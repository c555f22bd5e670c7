"""Place marks: what a log brought is stored once, whatever became of it since."""

import os
from collections.abc import Sequence
from typing import Any

import pytest

from duebridge.envelope import Envelope
from duebridge.ports.source import LogPosition
from duebridge.store.delay_store import DelayStore
from duebridge.store.registry import Registry
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import Connection
from duebridge.store.wire.log_positions import refused_row
from duebridge.store.wire.transitions import ScheduleMode
from tests.store.conftest import Opened
from tests.support.desk import DAY_MS, NOW_MS, YEAR_MS, Desk, acks, envelope

LOG = "kafka:orders:0:topic-life"
OPEN_FOR = 1000  # lua/shared/places.lua


def at(offset: int, epoch: int = 0, log: str = LOG) -> LogPosition:
    return LogPosition(log, epoch, offset)


def take(desk: Desk, rows: Sequence[tuple[int, Envelope | str]], **options: Any) -> list[str]:
    """Schedule rows of an offset and an envelope; return the answers."""
    log, epoch = options.pop("log", LOG), options.pop("epoch", 0)
    places = [at(offset, epoch, log) for offset, _ in rows]
    answers = desk.schedule(*[each for _, each in rows], places=places, **options)
    return [each.status for each in answers]


def says(id: str, body: bytes, delay: str = "1s", **given: Any) -> Envelope:
    return envelope(id, delay, body=body, **given)


def body_of(desk: Desk, id: str) -> bytes | None:
    found = desk.store.get(id)
    return found.content.body if found and found.content else None


def mark(desk: Desk, log: str = LOG) -> bytes | None:
    found: bytes | None = desk.client.hget(desk.key("meta"), f"p:{log}")
    return found


def deliver_all(desk: Desk) -> list[str]:
    desk.clock.advance(1000)
    claim = desk.claim_all()
    desk.store.ack(acks(claim.token, *claim.ids))
    return claim.ids


THREE = [(5, "a"), (6, "b"), (9, "c")]


def test_schedule_again_of_the_same_places_stores_nothing(desk: Desk) -> None:
    assert take(desk, THREE) == ["accepted"] * 3
    with desk.unchanged():
        again = desk.schedule("a", "b", "c", places=[at(5), at(6), at(9)])
        assert again == [("duplicate", NOW_MS + 1000)] * 3
        assert take(desk, THREE, mode="replace") == ["duplicate"] * 3


@pytest.mark.parametrize("mode", ["refuse", "replace", "replace_living"])
def test_schedule_again_after_delivery_stores_nothing(desk: Desk, mode: ScheduleMode) -> None:
    take(desk, THREE, mode=mode)
    assert deliver_all(desk) == ["a", "b", "c"]
    with desk.unchanged():
        again = desk.schedule("a", "b", "c", places=[at(5), at(6), at(9)], mode=mode)
        assert again == [("duplicate", 0)] * 3


def test_schedule_of_later_places_only_is_accepted_from_a_redelivered_batch(desk: Desk) -> None:
    take(desk, THREE)
    deliver_all(desk)
    assert take(desk, [*THREE[1:], (10, "d")]) == ["duplicate", "duplicate", "accepted"]
    assert mark(desk) == b"0:10:4"


def test_schedule_with_other_ids_at_places_taken_in_stores_nothing(desk: Desk) -> None:
    take(desk, THREE)
    with desk.unchanged():
        assert take(desk, [(5, "x"), (7, "y"), (9, "z")]) == ["duplicate"] * 3


def test_schedule_of_a_place_that_comes_twice_in_a_call_stores_it_once(desk: Desk) -> None:
    older, newer = says("k", b"old"), says("k", b"new")
    rows = [(1, older), (2, newer), (1, older)]
    assert take(desk, rows, mode="replace") == ["accepted", "replaced", "duplicate"]
    assert body_of(desk, "k") == b"new"


def test_replace_from_an_earlier_place_changes_nothing(desk: Desk) -> None:
    older, newer = says("k", b"old"), says("k", b"new")
    assert take(desk, [(1, older), (2, newer)], mode="replace") == ["accepted", "replaced"]
    assert take(desk, [(1, older)], mode="replace") == ["duplicate"]
    assert body_of(desk, "k") == b"new"
    assert take(desk, [(3, older)], mode="replace") == ["replaced"]
    assert body_of(desk, "k") == b"old"


def test_cancel_then_schedule_again_of_the_earlier_message_brings_nothing_back(desk: Desk) -> None:
    take(desk, [(1, "a")])
    assert desk.store.cancel("a", at(2)) == "cancelled"
    with desk.unchanged():
        assert take(desk, [(1, "a")], mode="replace") == ["duplicate"]
    assert take(desk, [(3, "a")]) == ["accepted"]


def test_cancel_again_of_a_place_taken_in_leaves_what_came_after_it(desk: Desk) -> None:
    take(desk, [(1, "a")])
    desk.store.cancel("a", at(2))
    take(desk, [(3, "a")])
    with desk.unchanged():
        assert desk.store.cancel("a", at(2)) == "unknown"
    assert desk.store.cancel("a") == "cancelled", "who asks without a place is always heard"


@pytest.mark.parametrize(
    ("state", "answer"),
    [("", "unknown"), ("dead", "dead"), ("unack", "in_flight"), ("pending", "cancelled")],
)
def test_cancel_moves_the_mark_whatever_it_answers(desk: Desk, state: str, answer: str) -> None:
    if state:
        desk.bring(state, "a")
    assert desk.store.cancel("a", at(7)) == answer
    assert mark(desk) == b"0:7:1"
    assert take(desk, [(6, "b")]) == ["duplicate"]
    assert desk.state_of("b") is None


def test_cancel_for_the_cold_tier_is_recorded_once(open_desk: Opened) -> None:
    desk = open_desk(cold_tier_ms=DAY_MS)
    assert desk.store.cancel("a", at(7)) == "recorded"
    with desk.unchanged():
        assert desk.store.cancel("a", at(7)) == "unknown"


def test_schedule_of_a_log_written_anew_is_accepted(desk: Desk) -> None:
    take(desk, [(8, "a"), (9, "b")], epoch=3)
    assert take(desk, [(8, "other")], epoch=4) == ["accepted"]
    assert take(desk, [(9, "b")], epoch=3) == ["duplicate"]
    assert take(desk, [(8, "other"), (9, "next")], epoch=4) == ["duplicate", "accepted"]
    assert mark(desk) == b"4:9:4"


def test_schedule_of_a_log_without_a_known_epoch_is_accepted_once(desk: Desk) -> None:
    assert take(desk, [(0, "a")], epoch=-1) == ["accepted"]
    assert take(desk, [(0, "a"), (1, "b")], epoch=-1) == ["duplicate", "accepted"]


def test_schedule_of_another_log_with_lower_offsets_is_accepted(desk: Desk) -> None:
    take(desk, [(900, "a")])
    places = [at(901), at(1, log="other"), None, at(2, log="other")]
    answers = desk.schedule("b", "c", "d", "e", places=places)
    assert [each.status for each in answers] == ["accepted"] * 4
    assert (mark(desk), mark(desk, "other")) == (b"0:901:2", b"0:2:2")


def test_schedule_again_of_a_refused_row_is_refused_again(desk: Desk) -> None:
    far, wrong = envelope("b", "9d"), envelope("c", "2s", expires="1s")
    rows = [(1, "a"), (2, far), (3, wrong), (4, "d"), (5, envelope("e", "9d"))]
    once = ["accepted", "too_far", "expires_before_due", "accepted", "too_far"]
    again = [each.replace("accepted", "duplicate") for each in once]
    assert take(desk, rows, max_delay_ms=DAY_MS) == once
    assert deliver_all(desk) == ["a", "d"]
    for _ in range(3):
        with desk.unchanged():
            assert take(desk, rows, max_delay_ms=DAY_MS) == again
    assert take(desk, rows[1:2]) == ["accepted"], "a longer delay is allowed by now"
    assert take(desk, rows[1:2]) == ["duplicate"]


def test_schedule_again_of_a_conflict_is_judged_again(desk: Desk) -> None:
    desk.pending("b")
    rows = [(1, "a"), (2, says("b", b"other")), (3, "c")]
    assert take(desk, rows) == ["accepted", "conflict", "accepted"]
    assert take(desk, rows) == ["duplicate", "conflict", "duplicate"]
    deliver_all(desk)
    assert take(desk, rows) == ["duplicate", "accepted", "duplicate"]


def test_schedule_again_of_what_was_in_flight_is_judged_again(desk: Desk) -> None:
    claim = desk.unack("k")
    rows = [(1, says("k", b"new")), (2, "b")]
    assert take(desk, rows, mode="replace") == ["in_flight", "accepted"]
    desk.store.ack(acks(claim.token, "k"))
    assert take(desk, rows, mode="replace") == ["accepted", "duplicate"]
    deliver_all(desk)
    assert take(desk, rows, mode="replace") == ["duplicate", "duplicate"]


def test_in_flight_row_stored_under_another_id_is_taken_in_by_that(desk: Desk) -> None:
    claim = desk.unack("k")
    rows = [(1, says("k", b"new")), (2, "b")]
    assert take(desk, rows, mode="replace") == ["in_flight", "accepted"]
    assert take(desk, [(1, says("k~1", b"new"))], mode="replace") == ["accepted"]
    desk.store.ack(acks(claim.token, "k"))
    deliver_all(desk)
    with desk.unchanged():
        assert take(desk, rows, mode="replace") == ["duplicate", "duplicate"]


def test_row_that_the_caller_refused_is_judged_when_it_comes_again(desk: Desk) -> None:
    """A larger limit may take it by then; its letter may not have been out."""
    options: dict[str, Any] = {"max_delay_ms": YEAR_MS, "places": [at(1), at(2), at(3)]}
    rows = [envelope("a"), refused_row("b"), envelope("c")]
    once = desk.store.schedule(rows, **options)
    assert [each.status for each in once] == ["accepted", "refused", "accepted"]
    assert desk.state_of("b") is None
    with desk.unchanged():
        again = desk.store.schedule(rows, **options)
        assert [each.status for each in again] == ["duplicate", "refused", "duplicate"]
    assert take(desk, [(2, "b")]) == ["accepted"]
    with desk.unchanged():
        assert desk.store.schedule(rows, **options)[1].status == "duplicate", "it is stored"


def test_refused_row_without_a_place_changes_nothing(desk: Desk) -> None:
    desk.pending("a")
    with desk.unchanged():
        answers = desk.store.schedule([refused_row("a")], max_delay_ms=YEAR_MS, mode="replace")
        assert [each.status for each in answers] == ["refused"]


@pytest.mark.parametrize("delivered", [False, True])
def test_refused_row_that_comes_again_never_undoes_a_later_one_of_its_id(
    desk: Desk, delivered: bool
) -> None:
    """What was refused is acceptable by now; the log's later word on the id stands."""
    soon = NOW_MS + DAY_MS + 5
    rows = [(1, says("k", b"old", at=soon)), (2, says("k", b"new")), (3, "b")]
    once = ["too_far", "accepted", "accepted"]
    assert take(desk, rows, mode="replace", max_delay_ms=DAY_MS) == once
    again = take(desk, rows, mode="replace", max_delay_ms=DAY_MS)
    assert again == ["too_far", "duplicate", "duplicate"], "its letter may not be out yet"
    if delivered:
        deliver_all(desk)
    desk.clock.advance(10)
    with desk.unchanged():
        answers = take(desk, rows, mode="replace", max_delay_ms=DAY_MS)
    assert answers == ["duplicate"] * 3


def test_in_flight_row_that_comes_again_never_undoes_a_later_replacement(desk: Desk) -> None:
    claim = desk.unack("k")
    older = [(1, says("k", b"old"))]
    assert take(desk, older, mode="replace") == ["in_flight"]
    desk.store.ack(acks(claim.token, "k"))
    assert take(desk, [(2, says("k", b"new"))], mode="replace") == ["accepted"]
    assert take(desk, older, mode="replace") == ["duplicate"]
    assert body_of(desk, "k") == b"new"


def test_in_flight_row_that_comes_again_is_not_brought_back_behind_a_cancel(desk: Desk) -> None:
    claim = desk.unack("k")
    older = [(1, says("k", b"old"))]
    assert take(desk, older, mode="replace") == ["in_flight"]
    assert desk.store.cancel("k", at(2)) == "in_flight"
    desk.store.ack(acks(claim.token, "k"))
    with desk.unchanged():
        assert take(desk, older, mode="replace") == ["duplicate"]


def test_later_refusal_of_an_id_does_not_supersede_an_earlier_one(desk: Desk) -> None:
    claim = desk.unack("k")
    rows = [(1, says("k", b"1")), (2, says("k", b"2"))]
    assert take(desk, rows, mode="replace") == ["in_flight"] * 2
    desk.store.ack(acks(claim.token, "k"))
    assert take(desk, rows, mode="replace") == ["accepted", "replaced"]
    assert body_of(desk, "k") == b"2"


def test_refused_places_are_forgotten_once_they_must_be_settled(desk: Desk) -> None:
    take(desk, [(n, envelope(f"far{n}", "9d")) for n in range(500)], max_delay_ms=DAY_MS)
    assert len(mark(desk).split()) == 501
    take(desk, [(n, f"id{n}") for n in range(500, OPEN_FOR)])
    assert len(mark(desk).split()) == 501, "none is forgotten too early"
    take(desk, [(OPEN_FOR + n, f"id{n}") for n in range(499)])
    assert mark(desk).split()[1].startswith(b"0:499:500:")
    take(desk, [(2 * OPEN_FOR, "last")])
    assert mark(desk) == b"0:2000:1500"


def test_refused_places_are_kept_however_often_they_come_again(desk: Desk) -> None:
    first = [(n, envelope(f"far{n}", "9d")) for n in range(250)]
    second = [(n, envelope(f"far{n}", "9d")) for n in range(250, 500)]
    take(desk, first, max_delay_ms=DAY_MS)
    for _ in range(10):
        assert {*take(desk, second, max_delay_ms=DAY_MS)} == {"too_far"}
    assert {*take(desk, first, max_delay_ms=DAY_MS)} == {"too_far"}


def test_damaged_mark_holds_nothing_up(desk: Desk) -> None:
    desk.client.hset(desk.key("meta"), f"p:{LOG}", b"\xff 7 a:b:c:d 1:2 0:3:1:x")
    assert take(desk, [(1, "a"), (3, "b")]) == ["accepted", "accepted"]


def test_crash_between_two_shards_stores_the_rest_of_the_batch_only(
    connection: Connection, desk: Desk
) -> None:
    """Each shard has a mark of its own: that of the shard that was not asked is behind."""
    registry = Registry(connection, desk.shard.namespace)
    registry.open_route("two", 2)
    route = RouteStore(connection, desk.shard.namespace, "two", 2)
    rows = [(envelope(f"id{n}"), at(n)) for n in range(20)]
    parts = route.by_shard(rows, lambda row: row[0].id)
    assert len(parts) == 2

    def store(part: tuple[DelayStore, list[tuple[Envelope, LogPosition]]]) -> set[str]:
        envelopes, places = zip(*part[1], strict=True)
        answers = part[0].schedule(envelopes, max_delay_ms=YEAR_MS, places=places)
        return {each.status for each in answers}

    assert store(parts[1]) == {"accepted"}
    assert [store(part) for part in parts] == [{"accepted"}, {"duplicate"}]
    registry.remove_route("two", 2)


def test_purge_of_a_route_removes_its_marks(connection: Connection, desk: Desk) -> None:
    take(desk, THREE)
    Registry(connection, desk.shard.namespace).remove_route(desk.shard.route, 1)
    assert mark(desk) is None
    desk.open()
    assert take(desk, THREE) == ["accepted"] * 3


def test_mark_holds_on_a_server_that_the_shard_was_not_renewed_on(desk: Desk) -> None:
    take(desk, THREE)
    desk.client.hset(desk.key("meta"), "master", "0" * 40)
    assert take(desk, [*THREE, (10, "d")]) == [*["duplicate"] * 3, "accepted"]
    assert desk.entries()[-2].kind == "renewed"


def test_bulk_call_with_places_keeps_no_answer(desk: Desk) -> None:
    patient = desk.again(repeat_for_s=5.0)
    call = {"max_delay_ms": YEAR_MS, "keeps_answer": False, "mode": "replace"}
    patient.schedule([envelope("a")], places=[at(1)], **call)
    assert desk.client.hlen(desk.key("memory")) == 0
    patient.schedule([envelope("b")], places=[None], **call)
    assert desk.client.hlen(desk.key("memory")) == 1


def test_schedule_with_too_few_places_is_refused(desk: Desk) -> None:
    with desk.unchanged(), pytest.raises(ValueError, match="a place for each of 2"):
        desk.schedule("a", "b", places=[at(1)])


def test_batch_that_takes_four_calls_gives_each_row_its_place(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has the ids exceeds the bytes that one call reads."""
    desk.pending(*[envelope(name, body=os.urandom(400_000)) for name in "abcd"])
    called: list[str] = []
    monkeypatch.setattr(desk.connection, "observe", lambda name, _: called.append(name))
    rows = [(n, says(name, b"small")) for n, name in enumerate("abcd")]
    assert take(desk, rows, mode="replace") == ["replaced"] * 4
    assert called == ["schedule"] * 4
    assert take(desk, rows) == ["duplicate"] * 4
    assert mark(desk) == b"0:3:4"
