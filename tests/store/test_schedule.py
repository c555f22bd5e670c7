"""Schedule: accepted, duplicate, conflict, replaced, refused; in bulk."""

import pytest

from duebridge.errors import StoreError, StoreFull
from duebridge.store.record import pack
from tests.store.conftest import Opened
from tests.support.desk import DAY_MS, NOW_MS, YEAR_MS, Desk, envelope


def test_schedule_of_an_unknown_id_makes_it_pending(desk: Desk) -> None:
    given = envelope("a", "15m", expires="1h", remember="1d")
    assert desk.schedule(given) == [("accepted", NOW_MS + 900_000)]
    assert desk.score_of("a", "pending") == NOW_MS + 900_000
    record = desk.record_of("a")
    packed = pack(given)
    assert (record.due_at_ms, record.expires_at_ms) == (NOW_MS + 900_000, NOW_MS + 3_600_000)
    assert (record.remember_ms, record.scheduled_at_ms) == (86_400_000, NOW_MS)
    assert (record.content_hash, record.blob) == (packed.content_hash, packed.blob)
    assert desk.flight_bytes("a") is None, "a pending envelope costs its record and nothing else"
    desk.check()


def test_schedule_writes_one_journal_entry_a_batch(desk: Desk) -> None:
    desk.pending("a", "b")
    (entry,) = desk.entries()
    assert (entry.kind, entry.at_ms, entry.sequence) == ("accepted", NOW_MS, 1)
    assert [(name, note.due_at_ms) for name, note in entry.items] == [
        ("a", NOW_MS + 1000),
        ("b", NOW_MS + 1000),
    ]


def test_schedule_at_a_past_instant_is_due_now(desk: Desk) -> None:
    assert desk.schedule(envelope("a", at=5)) == [("accepted", NOW_MS)]
    assert desk.score_of("a", "pending") == NOW_MS
    assert desk.store.promote()[1] == 1


def test_schedule_takes_generations_from_one_rising_counter(desk: Desk) -> None:
    desk.pending("a", "b")
    desk.pending("c")
    generations = [desk.record_of(name).generation for name in ("a", "b", "c")]
    assert generations == sorted(set(generations))


def test_schedule_of_a_mixed_batch_leaves_no_gap_in_the_generations(desk: Desk) -> None:
    desk.pending("a")
    same, other, too_far = envelope("a"), envelope("a", body=b"x"), envelope("d", "9d")
    desk.schedule(same, envelope("b"), other, envelope("c"), too_far, max_delay_ms=DAY_MS)
    desk.pending("e")
    assert [desk.record_of(name).generation for name in "abce"] == [1, 2, 3, 4]


@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "unack", "retry", "dead"])
def test_schedule_of_the_same_content_is_a_duplicate_in_every_state(desk: Desk, state: str) -> None:
    due = desk.clock() + 1000
    desk.bring(state, "a")
    before = desk.snapshot()
    assert desk.schedule("a") == [("duplicate", due)]
    assert desk.snapshot() == before


@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "unack", "retry", "dead"])
def test_schedule_of_other_content_is_a_conflict_in_every_state(desk: Desk, state: str) -> None:
    due = desk.clock() + 1000
    desk.bring(state, "a")
    before = desk.snapshot()
    assert desk.schedule(envelope("a", body=b"other")) == [("conflict", due)]
    assert desk.snapshot() == before


def test_schedule_twice_in_one_batch_accepts_the_first_only(desk: Desk) -> None:
    due = NOW_MS + 1000
    answers = desk.schedule(envelope("a"), envelope("a"), envelope("a", body=b"x"), envelope("b"))
    assert answers == [("accepted", due), ("duplicate", due), ("conflict", due), ("accepted", due)]
    assert desk.journal() == [("accepted", ["a", "b"])]
    desk.check()


def test_schedule_beyond_the_longest_delay_is_refused_alone(desk: Desk) -> None:
    answers = desk.schedule(
        envelope("fits", "60s"),
        envelope("far", "60001ms"),
        envelope("at", at=NOW_MS + 60_001),
        max_delay_ms=60_000,
    )
    assert [each.status for each in answers] == ["accepted", "too_far", "too_far"]
    assert desk.store.next().pending == 1
    desk.check()


def test_schedule_that_expires_before_due_is_refused_alone(desk: Desk) -> None:
    answers = desk.schedule(
        envelope("a", "2s", expires="1999ms"),
        envelope("b", "2s", expires="2001ms"),
        envelope("same", "2s", expires="2s"),
        envelope("c", at=NOW_MS + 5, expires=NOW_MS + 4),
        envelope("late", at=NOW_MS - 5, expires=NOW_MS - 1),
    )
    statuses = [each.status for each in answers]
    assert statuses == ["expires_before_due", "accepted", *["expires_before_due"] * 3]
    desk.check()


def test_schedule_of_a_refused_envelope_changes_nothing(desk: Desk) -> None:
    desk.pending("a")
    before = desk.snapshot()
    desk.schedule(envelope("b", "2s"), envelope("a", body=b"x"), max_delay_ms=1000)
    assert desk.snapshot() == before


def test_schedule_again_after_expiry_is_still_a_duplicate(desk: Desk) -> None:
    given = envelope("a", at=NOW_MS + 1000, expires=NOW_MS + 2000)
    desk.retry(given)
    desk.clock.advance(60_000)
    assert desk.schedule(given) == [("duplicate", NOW_MS + 1000)]


def test_schedule_again_under_a_shorter_longest_delay_is_a_duplicate(desk: Desk) -> None:
    given = envelope("a", "1h")
    desk.pending(given)
    assert desk.schedule(given, max_delay_ms=1000) == [("duplicate", NOW_MS + 3_600_000)]


def test_schedule_of_nothing_answers_nothing(desk: Desk) -> None:
    assert desk.schedule() == []
    assert desk.entries() == []


def test_schedule_of_1000_ids_of_the_longest_kind_is_one_step(desk: Desk) -> None:
    ids = [f"{n:04d}{'x' * 251}" for n in range(1000)]
    desk.pending(*ids)
    assert desk.store.next().pending == 1000
    assert desk.journal() == [("accepted", ids)]
    desk.check()


def test_schedule_of_1001_is_refused_whole(desk: Desk) -> None:
    before = desk.snapshot()
    with pytest.raises(StoreError, match="LIMIT at most 1000 envelopes"):
        desk.schedule(*[f"{n}" for n in range(1001)])
    assert desk.snapshot() == before


def test_schedule_after_delivery_is_a_new_life(desk: Desk) -> None:
    claim = desk.unack("a")
    desk.store.ack(claim.token, ["a"])
    desk.pending("a")
    desk.check()


def test_schedule_over_a_record_of_a_newer_layout_is_a_conflict(desk: Desk) -> None:
    desk.pending("a")
    desk.make_newer("a")
    before = desk.snapshot()
    for replace in (False, True):
        answers = desk.schedule(envelope("a", body=b"x"), replace=replace)
        assert [each.status for each in answers] == ["conflict"]
    assert desk.snapshot() == before


def test_schedule_over_a_cut_record_costs_no_other_envelope(desk: Desk) -> None:
    desk.pending("a")
    desk.replaced_record("a", lambda record: record[:3])
    answers = desk.schedule("a", "b")
    assert [each.status for each in answers] == ["conflict", "accepted"]


def test_schedule_of_bytes_that_are_no_text_keeps_them(desk: Desk) -> None:
    body = bytes(range(256)) * 3
    desk.ready(envelope("é\U0001f600", body=body, key=b"\x00\xff", headers=[("h", b"\xff")]))
    (leased,) = desk.store.claim(1, 1000).leased
    assert leased.id == "é\U0001f600"
    content = leased.content
    assert (content.body, content.key, content.headers) == (body, b"\x00\xff", (("h", b"\xff"),))


def test_schedule_of_one_envelope_with_options_leaves_later_ones_alone(desk: Desk) -> None:
    plain = envelope("plain")
    options = {"max_attempts": 9, "remember": "1h", "expires": "1h", "headers": {"a": "b"}}
    desk.pending(envelope("full", priority=3, key=b"k", **options), plain)
    desk.clock.advance(1000)
    leased = {each.id: each for each in desk.claim_all().leased}["plain"]
    assert (leased.record.expires_at_ms, leased.record.remember_ms) == (0, 0)
    content = leased.content
    assert (content.max_attempts, content.headers, content.properties) == (None, (), None)


def test_schedule_into_a_full_store_is_refused_and_drains_still_work(
    valkey, open_desk: Opened
) -> None:
    desk = open_desk(valkey)
    claim = desk.unack("a", "b", "c", "d")
    desk.dead("e", "f", "g", "h")
    desk.ready("i", "j", "k")
    before = desk.snapshot()
    desk.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreFull):
            desk.schedule("z", max_delay_ms=YEAR_MS)
        assert desk.snapshot() == before, "a refused schedule left something behind"
        drain(desk, claim)
    finally:
        desk.client.config_set("maxmemory", 0)
    desk.check()
    desk.pending("z")


def drain(desk: Desk, claim) -> None:
    store = desk.store
    assert store.ack(claim.token, ["a"]).stale == []
    desk.run("retry", claim.token, 0, 1, "b", 10, 1, 0, "E\nmessage")
    desk.run("bury", claim.token, "", 1, "c", 1, 1, 0, "E\nmessage")
    assert store.release(claim.token, ["d"]).stale == []
    leased = store.claim(1, 1000)
    assert len(leased.leased) == 1
    desk.clock.advance(1000)
    assert store.reclaim()[1] == 1
    assert store.promote()[1] == 1
    shunted = store.shunt(2, 1000)
    ids = [each.id for each in shunted.leased]
    assert store.ack(shunted.token, ids[:1], shunted=True).stale == []
    assert store.postpone(shunted.token, ids[1:], 10).stale == []
    assert store.cancel("i") == "cancelled"
    assert store.reschedule("j", "+10", YEAR_MS).status == "rescheduled"
    dead = [each.id for each in store.list("dead").entries if not each.flight.shunting]
    assert store.replay(dead[:1]) == ["replayed"]
    assert store.drop(dead[1:2]) == ["dropped"]
    desk.clock.advance(600_000)
    assert store.forget()[1] > 0


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
        other("a", "9s"), envelope("b", "2s", expires="1s"), replace=True, max_delay_ms=8000
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
