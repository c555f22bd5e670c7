"""A cold copy comes in only while it is its id's last word, whatever jobs overlap."""

import pytest

from duebridge.errors import StoreError
from duebridge.store.cold.notes import ColdNotes
from duebridge.store.wire.transitions import ScheduleMode
from tests.store.cold.cold_desk import (
    DUE_MS,
    Row,
    copied,
    demoted,
    far,
    hydrate,
    sift,
    tombstones,
)
from tests.support.desk import DAY_MS, YEAR_MS, Desk, acks, envelope, remembering

FILTERED = pytest.mark.parametrize("is_filtered", [True, False], ids=["filter", "no filter"])


def prepare(desk: Desk, is_filtered: bool) -> None:
    if is_filtered:
        sift(desk, floor=0)


@FILTERED
def test_cancel_of_what_came_back_binds_a_void_copy_that_comes_late(
    desk: Desk, is_filtered: bool
) -> None:
    """Two hydrates: one read the void copy before the other used its mark up."""
    prepare(desk, is_filtered)
    desk.schedule(far("x"))
    row = copied(desk, "x")
    assert desk.store.reschedule("x", "+1000", YEAR_MS).status == "rescheduled"
    assert desk.store.demote("B", 0, [("x", row.generation)]).void == 1
    assert desk.store.lift(2**47, ["xB/x"]) == 1
    assert desk.store.cancel("x") == "cancelled"
    assert hydrate(desk, row) == "duplicate"
    assert desk.state_of("x") is None


@FILTERED
def test_cancel_of_what_was_moved_and_came_back_binds_the_row_of_another_hydrate(
    desk: Desk, is_filtered: bool
) -> None:
    prepare(desk, is_filtered)
    row = demoted(desk, "x")
    assert desk.store.reschedule("x", "+5000", YEAR_MS).status == "recorded"
    assert hydrate(desk, row) == "accepted"
    assert desk.store.lift(2**47, ["tx"]) == 1
    assert desk.store.cancel("x") == "cancelled"
    assert hydrate(desk, row) == "duplicate"
    assert desk.state_of("x") is None


@FILTERED
@pytest.mark.parametrize("body", [b"body", b"other"])
@pytest.mark.parametrize("mode", ["replace", "refuse"])
def test_schedule_of_a_cold_id_is_accepted_and_ends_the_cold_copy(
    desk: Desk, is_filtered: bool, body: bytes, mode: ScheduleMode
) -> None:
    prepare(desk, is_filtered)
    row = demoted(desk, "y")
    assert [each.status for each in desk.schedule(far("y", body), mode=mode)] == ["accepted"]
    with desk.unchanged():
        assert hydrate(desk, row) == "duplicate"
    assert desk.store.cancel("y") == "cancelled"
    with desk.unchanged():
        assert hydrate(desk, row) == "duplicate"
    assert [kind for kind, _ in desk.journal()].count("cancelled") == 1


def test_schedule_in_a_batch_ends_the_copies_of_the_cold_ids_and_no_others(desk: Desk) -> None:
    prepare(desk, True)
    rows = [demoted(desk, f"cold{n}", f"B{n}") for n in range(70)]
    names = [*(f"new{n}" for n in range(70)), *(f"cold{n}" for n in range(70))]
    desk.schedule(*[far(name, b"other") for name in names])
    assert tombstones(desk) == {row.id for row in rows}, (
        "of 70 new ids the filter takes none for cold"
    )
    assert {hydrate(desk, row) for row in rows} == {"duplicate"}


def test_later_life_that_goes_cold_again_comes_back_and_the_earlier_one_does_not(
    desk: Desk,
) -> None:
    earlier = demoted(desk, "a")
    later = demoted(desk, "a", "C")
    assert hydrate(desk, earlier) == "duplicate"
    assert hydrate(desk, later) == "accepted"


def test_reschedule_of_what_came_back_ends_its_row(desk: Desk) -> None:
    row = demoted(desk, "a")
    assert hydrate(desk, row) == "accepted"
    assert desk.store.reschedule("a", "+1", YEAR_MS).status == "rescheduled"
    desk.clock.advance(1)
    claim = desk.claim_all()
    assert desk.store.ack(acks(claim.token, "a")).stale == []
    assert hydrate(desk, row) == "duplicate"


def test_cancel_of_a_cold_row_is_journalled_when_that_comes_and_not_if_its_id_began_anew(
    desk: Desk,
) -> None:
    one, other = demoted(desk, "one"), demoted(desk, "other", "C")
    assert desk.store.cancel("one") == desk.store.cancel("other") == "recorded"
    desk.schedule(far("other"))
    assert (hydrate(desk, one), hydrate(desk, other)) == ("cancelled", "duplicate")
    assert desk.journal()[-1] == ("cancelled", ["one"])


@pytest.mark.parametrize("comes_anew", [False, True])
def test_cancelled_cold_row_that_comes_twice_in_a_call_is_journalled_once(
    desk: Desk, comes_anew: bool
) -> None:
    row = demoted(desk, "a")
    assert desk.store.cancel("a") == "recorded"
    twice = [envelope("a", at=DUE_MS, body=row.body, remember="1h")] * 2
    again = 0 if comes_anew else row.generation
    answers = desk.schedule(*twice, generations=[row.generation, again])
    assert [each.status for each in answers] == ["cancelled", "cancelled"]
    assert desk.journal()[-1] == ("cancelled", ["a"])


def test_id_that_no_file_has_leaves_no_tombstone(desk: Desk) -> None:
    sift(desk, "cold", floor=1)
    desk.pending("a", "b")
    assert desk.store.reschedule("a", "+9", YEAR_MS).status == "rescheduled"
    assert desk.store.cancel("a") == "cancelled"
    assert desk.store.cancel("nobody") == "unknown"
    assert desk.store.reschedule("nobody", "+9", YEAR_MS).status == "unknown"
    assert tombstones(desk) == set()


def test_cold_ids_are_known_by_a_producer_that_knows_no_cold_tier(desk: Desk) -> None:
    row = demoted(desk, "a")
    assert desk.again().cancel("a") == "recorded"
    assert hydrate(desk, row) == "cancelled"


def test_tombstone_of_an_earlier_version_binds_as_it_did(desk: Desk) -> None:
    """Version 0.2.0 wrote no end, and an expiry."""
    first, second = demoted(desk, "a"), demoted(desk, "b", "C")
    at = desk.clock()
    left = second.generation.to_bytes(6)
    for name, due, cancelled in (("ta", 0, second.generation), ("tb", at + 5000, 0)):
        value = at.to_bytes(6) + left + due.to_bytes(6) + cancelled.to_bytes(6)
        desk.client.hset(desk.key("memory"), name, value)
        desk.client.zadd(desk.key("forget"), {name: at})
    desk.client.hset(desk.key("memory"), "xD/c", at.to_bytes(6))
    desk.client.zadd(desk.key("forget"), {"xD/c": at})
    desk.clock.advance(2 * YEAR_MS)
    desk.store.forget()
    assert ColdNotes(desk.connection, desk.shard).is_void("D", "c")
    assert hydrate(desk, first) == "cancelled"
    assert desk.schedule(far("b"), generations=[second.generation]) == [("accepted", at + 5000)]


@FILTERED
def test_tombstones_of_many_schedules_cancels_and_moves_stay_few(
    desk: Desk, is_filtered: bool
) -> None:
    """What a job leaves of 20 days' tombstones: those of rows that are still cold."""
    prepare(desk, is_filtered)
    demoted(desk, "kept")
    desk.store.cancel("kept")
    counts = []
    for day in range(20):
        row = demoted(desk, f"a{day}", f"B{day}")
        desk.schedule(far(row.id))
        desk.store.cancel(row.id)
        desk.store.cancel(f"b{day}")
        desk.clock.advance(DAY_MS)
        made = desk.store.new_generation()
        sift(desk, "kept", floor=1)
        gone = [f"t{name}" for name in tombstones(desk) - {"kept"}]
        desk.store.lift(made, gone)
        counts.append(len(tombstones(desk)))
    assert set(counts) == {1}
    sift(desk, floor=desk.store.new_generation())
    desk.clock.advance(2 * YEAR_MS)
    desk.store.forget()
    assert tombstones(desk) == set(), "no row is cold any more"


def test_row_below_the_floor_is_refused_and_one_that_goes_cold_below_it_is_not(desk: Desk) -> None:
    desk.schedule(far("low"))
    low = copied(desk, "low", "L")
    gone = demoted(desk, "gone")
    sift(desk, floor=desk.store.new_generation())
    with desk.unchanged():
        assert hydrate(desk, gone) == "conflict"
    assert desk.store.demote("L", 0, [("low", low.generation)]).removed == 1
    assert hydrate(desk, low) == "accepted"


def test_floor_of_a_rebuild_is_not_above_what_went_cold_meanwhile(desk: Desk) -> None:
    desk.schedule(far("low"))
    low = copied(desk, "low")
    made = desk.store.new_generation()
    desk.store.begin_sift(128, made, "")
    desk.store.demote("B", 0, [("low", low.generation)])
    desk.store.end_sift(made, "")
    assert hydrate(desk, low) == "accepted"
    assert desk.store.cancel("low") == "cancelled"
    assert hydrate(desk, low) == "duplicate", "the rebuilt filter has it"


def test_renewed_shard_takes_every_id_for_cold(desk: Desk) -> None:
    """The server may have lost marks: what it still has in pending may be cold as well."""
    row = demoted(desk, "a")
    sift(desk, floor=1)
    assert desk.store.cancel("a") == "unknown"
    desk.client.hset(desk.key("meta"), "master", "another")
    assert desk.store.cancel("a") == "recorded"
    assert hydrate(desk, row) == "cancelled"


def test_hydrate_without_its_lease_is_refused(desk: Desk) -> None:
    row = demoted(desk, "a")
    assert desk.store.occupy("A", 1000, "hydrate on one").did
    desk.clock.advance(1000)
    assert desk.store.occupy("B", 1000, "hydrate on two").did
    with desk.unchanged(), pytest.raises(StoreError, match="hydrate on two has it since"):
        hydrate(desk, row, lease="A")
    with desk.unchanged(), pytest.raises(StoreError, match="HELD"):
        desk.store.lift(2**47, ["ta"], "A")
    assert desk.store.cancel("a") == "recorded"
    assert hydrate(desk, row, lease="B") == "cancelled"
    desk.store.vacate("B")
    with pytest.raises(StoreError, match="it ran out"):
        hydrate(desk, Row("b", 9, "B"), lease="B")


def generation_of(desk: Desk) -> int:
    return ColdNotes(desk.connection, desk.shard).new_generation()


@FILTERED
@pytest.mark.parametrize("body", [b"body", b"other"], ids=["the same", "other"])
def test_mark_of_an_id_that_lives_here_makes_its_row_void(
    desk: Desk, is_filtered: bool, body: bytes
) -> None:
    prepare(desk, is_filtered)
    desk.schedule(envelope("x", at=desk.clock() + 1000))
    generation = generation_of(desk)
    assert desk.store.mark(["y", "x", "z"], generation, "") == ["x"]
    desk.clock.advance(1000)
    claim = desk.claim_all()
    desk.store.ack(acks(claim.token, "x"))
    assert hydrate(desk, Row("x", generation, "L", body)) == "duplicate"
    assert hydrate(desk, Row("y", generation, "L", body)) == "accepted"


@FILTERED
def test_mark_again_of_what_was_void_and_has_ended_says_so_again(
    desk: Desk, is_filtered: bool
) -> None:
    """A task of Spark runs twice: the second answer is the one that counts."""
    prepare(desk, is_filtered)
    desk.schedule(far("x"))
    generation = generation_of(desk)
    assert desk.store.mark(["x"], generation, "") == ["x"]
    assert desk.store.cancel("x") == "cancelled"
    assert desk.store.mark(["x"], generation, "") == ["x"]
    later = generation_of(desk)
    assert desk.store.mark(["x"], later, "") == []
    assert hydrate(desk, Row("x", later, "M")) == "accepted"


@FILTERED
@pytest.mark.parametrize("is_copied_first", [True, False], ids=["copied first", "marked first"])
def test_demote_of_an_id_whose_row_was_void_at_its_mark_keeps_it_for_the_next_batch(
    desk: Desk, is_filtered: bool, is_copied_first: bool
) -> None:
    """The mark ends every copy up to now: that of the envelope itself would not come back."""
    prepare(desk, is_filtered)
    desk.schedule(far("x"))
    before = copied(desk, "x")
    assert desk.store.mark(["x"], generation_of(desk), "") == ["x"]
    row = before if is_copied_first else copied(desk, "x")
    assert desk.store.demote("B", 0, [("x", row.generation)])[1:] == (1, 0, 1)
    assert desk.state_of("x") == "pending"
    row = copied(desk, "x")
    assert desk.store.demote("C", 0, [("x", row.generation)])[1:] == (1, 1, 0)
    assert hydrate(desk, row) == "accepted"


@FILTERED
@pytest.mark.parametrize("how", ["delivered", "cancelled"])
@pytest.mark.parametrize("body", [b"body", b"other"], ids=["the same", "other"])
def test_later_life_of_a_remembered_id_comes_back_from_the_files(
    desk: Desk, is_filtered: bool, how: str, body: bytes
) -> None:
    prepare(desk, is_filtered)
    desk.schedule(envelope("x", at=desk.clock() + 1000, remember="60d"))
    if how == "delivered":
        desk.clock.advance(1000)
        desk.store.ack(remembering(desk.claim_all()))
    else:
        assert desk.store.cancel("x") == "cancelled"
    (answer,) = desk.schedule(far("x", body), mode="replace")
    assert answer.status in ("accepted", "replaced")
    row = copied(desk, "x")
    assert desk.store.demote("B", 0, [("x", row.generation)]).removed == 1
    assert hydrate(desk, row) == "accepted"


@FILTERED
def test_mark_of_an_id_that_is_not_here_leaves_its_later_row_alone(
    desk: Desk, is_filtered: bool
) -> None:
    """The job of the earlier row may die before it asks the store."""
    prepare(desk, is_filtered)
    demoted(desk, "x", "A")
    generation = generation_of(desk)
    desk.schedule(far("x", b"later"))  # ends what is cold
    row = copied(desk, "x")
    assert desk.store.demote("B", 0, [("x", row.generation)]).removed == 1
    assert desk.store.mark(["x"], generation, "") == ["x"]
    assert hydrate(desk, row) == "accepted"


@FILTERED
@pytest.mark.parametrize("how", ["delivered", "cancelled"])
def test_mark_of_an_id_that_is_remembered_leaves_its_row_to_the_store(
    desk: Desk, is_filtered: bool, how: str
) -> None:
    """It was cancelled, or delivered, after a job had read its row: that row would come back."""
    prepare(desk, is_filtered)
    desk.schedule(envelope("x", at=desk.clock() + 1000, remember="1h"))
    generation = generation_of(desk)
    if how == "delivered":
        desk.clock.advance(1000)
        desk.store.ack(remembering(desk.claim_all()))
    else:
        assert desk.store.cancel("x") == "cancelled"
    assert desk.store.mark(["x", "y"], generation, "") == ["x"]
    desk.clock.advance(3_600_000)
    assert desk.store.mark(["x"], generation_of(desk), "") == []


@FILTERED
def test_job_that_runs_again_brings_nothing_back_that_was_cancelled_while_cold(
    desk: Desk, is_filtered: bool
) -> None:
    prepare(desk, is_filtered)
    row = demoted(desk, "x")
    assert desk.store.cancel("x") == "recorded"
    again = {"mode": "once", "keeps_answer": False}
    for _ in range(2):
        assert [each.status for each in desk.schedule(far("x"), far("y"), **again)] in (
            ["cancelled", "accepted"],
            ["cancelled", "duplicate"],
        )
        assert desk.state_of("x") is None
    assert hydrate(desk, row) == "cancelled", "and journals it"
    assert desk.journal()[-1] == ("cancelled", ["x"])


@pytest.mark.parametrize("since", ["schedule", "cancel"])
def test_id_for_one_use_that_began_anew_or_ended_here_binds_nothing(desk: Desk, since: str) -> None:
    demoted(desk, "x")
    desk.store.cancel("x")
    assert [each.status for each in desk.schedule(far("x", b"other"))] == ["accepted"]
    if since == "cancel":
        assert desk.store.cancel("x") == "cancelled"
    expected = {"schedule": "conflict", "cancel": "accepted"}[since]
    assert [each.status for each in desk.schedule(far("x"), mode="once")] == [expected]
