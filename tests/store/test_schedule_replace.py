"""What schedule does with `replace`: in every state, and when its reply was lost."""

import pytest

from tests.store.desk import NOW_MS, Desk, envelope


def other(id: str = "a", delay: str = "5s"):
    return envelope(id, delay, body=b"the new content")


@pytest.mark.parametrize("state", ["pending", "ready", "retry", "dead"])
def test_schedule_with_replace_gives_a_new_life_where_nobody_delivers(
    desk: Desk, state: str
) -> None:
    desk.bring(state, "a")
    generation = desk.record_of("a").generation
    due = desk.clock() + 5000
    assert desk.schedule(other(), replace=True) == [("replaced", due)]
    assert desk.state_of("a") == "pending"
    assert desk.score_of("a", "pending") == due
    assert desk.record_of("a").generation > generation
    assert desk.flight_bytes("a") is None
    assert desk.last_entry().kind == "replaced"
    desk.check()
    desk.clock.advance(5000)
    (leased,) = desk.claim_all().leased
    assert (leased.content.body, leased.flight.attempt) == (b"the new content", 1)


@pytest.mark.parametrize("state", ["suspect", "unack", "shunting"])
def test_schedule_with_replace_waits_for_nobody_who_may_deliver(desk: Desk, state: str) -> None:
    desk.bring(state, "a")
    before = desk.snapshot()
    assert [each.status for each in desk.schedule(other(), replace=True)] == ["in_flight"]
    assert desk.snapshot() == before


def test_schedule_with_replace_of_an_unsure_retry_is_in_flight(desk: Desk) -> None:
    desk.retry("a", failed=False, unsure=True)
    before = desk.snapshot()
    assert [each.status for each in desk.schedule(other(), replace=True)] == ["in_flight"]
    assert desk.snapshot() == before


def test_schedule_with_replace_after_a_shunts_lease_replaces(desk: Desk) -> None:
    claim = desk.shunt("a")
    desk.clock.advance(30_000)
    assert [each.status for each in desk.schedule(other(), replace=True)] == ["replaced"]
    before = desk.snapshot()
    assert desk.store.ack(claim.token, ["a"], shunted=True).stale == ["a"]
    assert desk.snapshot() == before
    desk.check()


def test_schedule_with_replace_of_the_same_content_is_a_duplicate(desk: Desk) -> None:
    desk.pending("a")
    assert desk.schedule("a", replace=True) == [("duplicate", NOW_MS + 1000)]


def test_schedule_with_replace_of_an_unknown_id_accepts(desk: Desk) -> None:
    assert [each.status for each in desk.schedule("a", replace=True)] == ["accepted"]


def test_schedule_with_replace_twice_in_one_batch_takes_the_first(desk: Desk) -> None:
    desk.pending("a")
    answers = desk.schedule(other(delay="5s"), other(delay="6s"), replace=True)
    assert [each.status for each in answers] == ["replaced", "conflict"]
    assert desk.score_of("a", "pending") == NOW_MS + 5000
    desk.check()


def test_schedule_with_replace_that_is_refused_leaves_the_old(desk: Desk) -> None:
    desk.pending("a", "b")
    before = desk.snapshot()
    answers = desk.schedule(
        other("a", "9s"),
        envelope("b", "2s", expires="1s"),
        replace=True,
        max_delay_ms=8000,
    )
    assert [each.status for each in answers] == ["too_far", "expires_before_due"]
    assert desk.snapshot() == before


def test_schedule_repeated_under_its_call_id_answers_as_it_did(desk: Desk) -> None:
    desk.pending("a")
    first = desk.run_schedule("call", [other()])
    before = desk.snapshot()
    desk.clock.advance(700)
    assert desk.run_schedule("call", [other()]) == first == [b"replaced", NOW_MS + 5000]
    assert desk.snapshot() == before


@pytest.mark.parametrize("meanwhile", ["ready", "unack", "delivered", "cancelled", "rescheduled"])
def test_schedule_repeated_after_the_envelope_moved_on_changes_nothing(
    desk: Desk, meanwhile: str
) -> None:
    desk.pending("a")
    first = desk.run_schedule("call", [other()])
    move_on(desk, meanwhile)
    before = desk.snapshot()
    assert desk.run_schedule("call", [other()]) == first
    assert desk.snapshot() == before
    desk.check()


def move_on(desk: Desk, how: str) -> None:
    if how == "cancelled":
        assert desk.store.cancel("a") == "cancelled"
        return
    if how == "rescheduled":
        assert desk.store.reschedule("a", "+60000", 10**9).status == "rescheduled"
        return
    desk.clock.advance(5000)
    desk.store.promote()
    if how != "ready":
        claim = desk.store.claim(1, 60_000)
        if how == "delivered":
            assert desk.store.ack(claim.token, ["a"]).stale == []


def test_schedule_repeated_batch_takes_no_second_content_of_an_id(desk: Desk) -> None:
    desk.pending("a")
    batch = [other(delay="5s"), other(delay="6s")]
    first = desk.run_schedule("call", batch)
    assert desk.run_schedule("call", batch)[::2] == first[::2] == [b"replaced", b"conflict"]
    assert desk.score_of("a", "pending") == NOW_MS + 5000


def test_schedule_under_another_call_id_replaces_again(desk: Desk) -> None:
    desk.pending("a")
    desk.run_schedule("one", [other()])
    answer = desk.run_schedule("two", [other(delay="9s")])
    assert answer == [b"replaced", NOW_MS + 9000]
    desk.check()


def test_schedule_call_id_is_kept_for_its_time_only(desk: Desk) -> None:
    desk.pending("a")
    desk.run_schedule("call", [other()])
    desk.clock.advance(60_000)
    assert desk.store.forget()[1] == 1
    assert desk.snapshot()["memory"] == {}
