"""What is stored beside an id that is on its way: later replacements and cancels of it reach it."""

from typing import Any

import pytest
from msgspec.structs import replace

from duebridge.ports.source import LogPosition
from duebridge.store.wire.replies import ScheduleReply
from tests.support.desk import LEASE_MS, YEAR_MS, Desk, acks, burial, envelope

WEEK_MS = 7 * 24 * 3600 * 1000


class Line:
    """Messages of one log, in its order; those that find their id on its way go beside it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.token = b""
        self._offset = 0

    def again(self, offset: int) -> None:
        """Begin again at an offset, as after a crash."""
        self._offset = offset - 1

    def send(self, *bodies: str, key: str = "a", **given: Any) -> list[str]:
        """Send messages of one key as an intake does; return what each was answered last."""
        places = [self._next() for _ in bodies]
        rows = [envelope(key, body=body.encode(), **given) for body in bodies]
        first = self._stored(rows, mode="replace", places=places)
        taken = [n for n, each in enumerate(first) if each.status == "in_flight"]
        if taken:
            second = self._stored(
                [replace(rows[n], id=f"{key}~{places[n].offset}") for n in taken],
                places=[places[n] for n in taken],
                primary_ids=[key] * len(taken),
            )
            first = [*first]
            for n, answer in zip(taken, second, strict=True):
                first[n] = answer
        return [each.status for each in first]

    def cancel(self, key: str = "a") -> str:
        return self.desk.store.cancel(key, self._next())

    def waiting(self) -> dict[str, bytes | None]:
        entries = self.desk.store.list("pending").entries
        return {each.id: each.content.body for each in entries if each.content}

    def _next(self) -> LogPosition:
        self._offset += 1
        return LogPosition("log", 0, self._offset)

    def _stored(self, rows: Any, **options: Any) -> list[ScheduleReply]:
        return self.desk.store.schedule(rows, max_delay_ms=YEAR_MS, **options)


@pytest.fixture
def line(desk: Desk) -> Line:
    """The key's first message is on its way, the second waits beside it."""
    line = Line(desk)
    line.send("1")
    desk.clock.advance(1000)
    claim = desk.claim_all()
    assert claim.ids == ["a"]
    line.token = claim.token
    assert line.send("2") == ["accepted"]
    assert line.waiting() == {"a~2": b"2"}
    return line


def test_replacement_while_the_id_is_on_its_way_replaces_what_is_beside(line: Line) -> None:
    assert line.send("3") == ["replaced"]
    assert line.waiting() == {"a~2": b"3"}
    line.desk.check()


def test_replacements_of_one_batch_leave_only_the_last(desk: Desk) -> None:
    line = Line(desk)
    line.send("1")
    desk.clock.advance(1000)
    desk.claim_all()
    assert line.send("2", "3", "4") == ["accepted", "replaced", "replaced"]
    assert line.waiting() == {"a~2": b"4"}
    desk.check()


def test_replacement_after_the_delivery_takes_the_id_and_ends_what_is_beside(line: Line) -> None:
    line.desk.store.ack(acks(line.token, "a"))

    assert line.send("3") == ["accepted"]
    assert line.waiting() == {"a": b"3"}
    assert line.desk.journal()[-2:] == [("accepted", ["a"]), ("cancelled", ["a~2"])]
    assert line.send("4") == ["replaced"]
    line.desk.check()


def test_replacement_of_what_failed_takes_the_id_and_ends_what_is_beside(desk: Desk) -> None:
    line = Line(desk)
    line.send("1")
    desk.clock.advance(1000)
    claim = desk.claim_all()
    line.send("2")
    desk.put_back(claim, delay_ms=60_000)

    assert line.send("3") == ["replaced"]
    assert line.waiting() == {"a": b"3"}
    desk.check()


def test_content_of_the_delivery_sent_once_more_is_the_newest(line: Line) -> None:
    assert line.send("1") == ["replaced"]
    assert line.waiting() == {"a~2": b"1"}


def test_replacement_while_both_are_on_their_way_is_stored_beside_in_turn(line: Line) -> None:
    line.desk.clock.advance(1000)
    assert line.desk.claim_all().ids == ["a~2"]
    assert line.send("3") == ["accepted"]
    assert line.send("4") == ["replaced"]
    assert line.waiting() == {"a~3": b"4"}


def test_cancel_reaches_what_is_on_its_way_and_what_is_beside(line: Line) -> None:
    assert line.cancel() == "in_flight"
    assert line.waiting() == {}
    assert line.desk.flight_of("a").cancel
    line.desk.run_out()
    assert line.desk.state_of("a") is None
    line.desk.check()


def test_cancel_after_the_delivery_reaches_what_is_beside(line: Line) -> None:
    line.desk.store.ack(acks(line.token, "a"))

    assert line.desk.store.cancel("a") == "cancelled"
    assert line.waiting() == {}
    assert line.desk.store.cancel("a") == "unknown"
    assert line.send("3") == ["accepted"]
    line.desk.check()


def test_cancel_while_what_is_beside_is_on_its_way_marks_it(line: Line) -> None:
    line.desk.clock.advance(1000)
    assert line.desk.claim_all().ids == ["a~2"]
    assert line.cancel() == "in_flight"
    assert line.desk.flight_of("a~2").cancel


def test_redelivery_of_what_is_beside_changes_nothing(line: Line) -> None:
    given = [envelope("a", body=b"2")]
    place = [LogPosition("log", 0, 2)]
    line.send("3")
    with line.desk.unchanged():
        answers = line.desk.store.schedule(
            given, max_delay_ms=YEAR_MS, mode="replace", places=place
        )
    assert [each.status for each in answers] == ["duplicate"]
    assert line.waiting() == {"a~2": b"3"}


def test_redelivery_without_a_place_does_not_undo_what_is_beside(line: Line) -> None:
    given = [envelope("a", body=b"1")]
    answers = line.desk.store.schedule(given, max_delay_ms=YEAR_MS, mode="replace")
    assert [each.status for each in answers] == ["duplicate"]
    assert line.waiting() == {"a~2": b"2"}


def test_what_is_beside_is_known_until_a_week_after_it_was_due(line: Line) -> None:
    line.desk.clock.advance(1000 + WEEK_MS)
    line.desk.store.forget()
    assert line.send("3") == ["accepted"]
    assert line.waiting().keys() == {"a~2", "a~3"}


def test_dead_letter_beside_stays_dead(line: Line) -> None:
    line.desk.clock.advance(1000)
    claim = line.desk.claim_all()
    line.desk.store.bury(claim.token, [burial("a~2")])
    line.desk.clock.advance(LEASE_MS)
    assert line.cancel() == "in_flight"
    assert line.desk.state_of("a~2") == "dead"


def test_cancel_reaches_an_earlier_one_beside_that_is_on_its_way(line: Line) -> None:
    line.desk.clock.advance(1000)
    claim = line.desk.claim_all()
    assert line.send("3") == ["accepted"]
    line.desk.store.ack(acks(line.token, "a"))

    assert line.cancel() == "in_flight"
    assert line.waiting() == {}
    line.desk.store.release(claim.token, claim.ids)
    assert line.desk.state_of("a~2") is None
    line.desk.check()


def test_cancel_reaches_what_is_beside_and_was_on_its_way_when_the_id_got_newer(line: Line) -> None:
    line.desk.clock.advance(1000)
    claim = line.desk.claim_all()
    line.desk.store.ack(acks(line.token, "a"))
    assert line.send("3") == ["accepted"]

    assert line.cancel() == "in_flight"
    line.desk.store.release(claim.token, claim.ids)
    assert line.desk.state_of("a~2") is None
    line.desk.check()


def test_replacement_of_what_failed_ends_all_that_is_beside(line: Line) -> None:
    line.desk.clock.advance(1000)
    claim = line.desk.claim_all()
    assert line.send("3") == ["accepted"]
    line.desk.store.ack(acks(line.token, "a"))
    line.desk.store.release(claim.token, claim.ids)

    assert line.send("4") == ["accepted"]
    assert line.waiting() == {"a": b"4"}
    assert line.desk.state_of("a~2") is None
    line.desk.check()


def test_second_replacement_of_an_unsure_dead_letter_is_not_lost(line: Line) -> None:
    line.desk.store.bury(line.token, [burial("a", unsure=True)])

    assert line.send("3", "4") == ["replaced", "replaced"]
    assert line.waiting() == {"a": b"3", "a~2": b"4"}
    line.desk.check()


def test_replacement_of_what_is_beside_is_known_until_a_week_after_its_own_due(line: Line) -> None:
    assert line.send("3", delay="30d") == ["replaced"]
    line.desk.clock.advance(29 * WEEK_MS // 7)
    line.desk.store.forget()
    assert line.cancel() == "in_flight"
    assert line.waiting() == {}


def test_refused_message_that_comes_again_does_not_undo_what_is_beside(desk: Desk) -> None:
    line = Line(desk)
    line.send("1")
    desk.clock.advance(1000)
    desk.claim_all()
    at = desk.clock() + YEAR_MS + 1000
    assert line.send("2", at=at) == ["too_far"]
    assert line.send("3") == ["accepted"]

    desk.clock.advance(2000)
    line.again(2)
    assert line.send("2", at=at) == ["duplicate"]
    assert line.waiting() == {"a~3": b"3"}


def test_cancel_of_what_is_beside_binds_a_cold_row_of_the_id_too(desk: Desk) -> None:
    desk.store = desk.again(cold_tier_ms=YEAR_MS)
    line = Line(desk)
    line.send("1")
    desk.clock.advance(1000)
    claim = desk.claim_all()
    assert line.send("2") == ["accepted"]
    desk.store.ack(acks(claim.token, "a"))
    desk.pending("a")
    generation = desk.record_of("a").generation
    assert desk.store.demote("batch", 0, [("a", generation)]).removed == 1

    assert desk.store.cancel("a") == "cancelled"
    (hydrated,) = desk.schedule(envelope("a"), generations=[generation])
    assert hydrated.status == "cancelled"
    desk.check()


def test_content_sent_again_after_its_cancel_is_stored_beside_the_delivery(line: Line) -> None:
    assert line.cancel() == "in_flight"
    assert line.send("1") == ["accepted"]
    line.desk.run_out()
    assert line.desk.state_of("a") is None
    assert line.waiting() == {"a~4": b"1"}
    line.desk.check()
