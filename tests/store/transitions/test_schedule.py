"""Schedule: accepted, duplicate, conflict, replaced, refused; in bulk, and of packed rows."""

import pytest

from duebridge.amqp_fields import field
from duebridge.errors import StoreError, StoreFull
from duebridge.store.delay_store import DelayStore
from duebridge.store.server.connection import Connection
from duebridge.store.wire.packed_row import PackedRow, pack_row
from duebridge.store.wire.record import pack
from duebridge.store.wire.transitions import ScheduleMode
from tests.store.conftest import Opened
from tests.support.desk import (
    DAY_MS,
    NOW_MS,
    YEAR_MS,
    Desk,
    acks,
    burial,
    envelope,
    postponed,
    remembering,
)
from tests.support.model.invariants import STATES


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


@pytest.mark.parametrize("body", [b"short", b"x" * 5000])
def test_record_with_a_field_of_amqp_has_a_layout_of_its_own_through_all_lives(
    desk: Desk, body: bytes
) -> None:
    """0.2.0 reads no such header, and leaves what has a layout that it does not know."""
    given = envelope("field", body=body, headers=[("n", field("l", bytes(8)))], remember="1d")
    desk.pending(given, "plain")
    assert [layout_of(desk, each) for each in ("field", "plain")] == [2, 1]
    assert [each.status for each in desk.schedule(given)] == ["duplicate"]
    assert desk.store.reschedule("field", "+0", YEAR_MS).status == "rescheduled"
    assert layout_of(desk, "field") == 2
    claim = desk.claim_all()
    assert [each.content.headers for each in claim.leased] == [given.headers]
    desk.store.bury(claim.token, [burial("field")])
    assert desk.store.replay(["field"]) == ["replayed"]
    assert layout_of(desk, "field") == 2
    claim = desk.claim_all()
    desk.store.ack(remembering(claim))
    assert [each.status for each in desk.schedule(given)] == ["duplicate"]


def layout_of(desk: Desk, id: str) -> int:
    return int(desk.client.hget(desk.key("envelopes"), id)[0])


def test_schedule_at_a_past_instant_is_due_now(desk: Desk) -> None:
    assert desk.schedule(envelope("a", at=5)) == [("accepted", NOW_MS)]
    assert desk.score_of("a", "pending") == NOW_MS
    assert desk.store.promote()[1] == 1


def test_schedule_of_a_mixed_batch_leaves_no_gap_in_the_generations(desk: Desk) -> None:
    first = desk.generation() + 1
    desk.pending("a")
    same, other, too_far = envelope("a"), envelope("a", body=b"x"), envelope("d", "9d")
    desk.schedule(same, envelope("b"), other, envelope("c"), too_far, max_delay_ms=DAY_MS)
    desk.pending("e")
    assert [desk.record_of(name).generation for name in "abce"] == [*range(first, first + 4)]


@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "unack", "retry", "dead"])
def test_schedule_again_is_a_duplicate_or_a_conflict_in_every_state(desk: Desk, state: str) -> None:
    due = desk.clock() + 1000
    desk.bring(state, "a")
    with desk.unchanged():
        assert desk.schedule("a") == [("duplicate", due)]
        assert desk.schedule(envelope("a", body=b"other")) == [("conflict", due)]


def test_schedule_twice_in_one_batch_accepts_the_first_only(desk: Desk) -> None:
    due = NOW_MS + 1000
    answers = desk.schedule(envelope("a"), envelope("a"), envelope("a", body=b"x"), envelope("b"))
    assert answers == [("accepted", due), ("duplicate", due), ("conflict", due), ("accepted", due)]
    assert desk.journal() == [("accepted", ["a", "b"])]


def test_schedule_beyond_the_longest_delay_is_refused_alone(desk: Desk) -> None:
    answers = desk.schedule(
        envelope("fits", "60s"),
        envelope("far", "60001ms"),
        envelope("at", at=NOW_MS + 60_001),
        max_delay_ms=60_000,
    )
    assert [each.status for each in answers] == ["accepted", "too_far", "too_far"]
    assert desk.store.next().pending == 1


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


def test_schedule_of_1000_of_the_longest_ids_is_one_step_and_1001_is_refused(desk: Desk) -> None:
    ids = [f"{n:04d}{'x' * 251}" for n in range(1000)]
    with desk.unchanged(), pytest.raises(StoreError, match="LIMIT at most 1000 envelopes"):
        desk.schedule(*ids, "x")
    desk.pending(*ids)
    assert desk.store.next().pending == 1000
    assert desk.journal() == [("accepted", ids)]


def test_schedule_over_a_record_of_a_newer_layout_is_a_conflict(desk: Desk) -> None:
    desk.pending("a")
    desk.make_newer("a")
    with desk.unchanged():
        for mode in ("refuse", "replace"):
            answers = desk.schedule(envelope("a", body=b"x"), mode=mode)
            assert [each.status for each in answers] == ["conflict"]


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
    assert store.ack(acks(claim.token, "a")).stale == []
    desk.run("retry", claim.token, 1, "b", 10, 1, 0, 0, "E\nmessage")
    desk.run("bury", claim.token, "", 1, "c", 1, 1, 0, "E\nmessage")
    assert store.release(claim.token, ["d"]).stale == []
    leased = store.claim(1, 1000)
    assert len(leased.leased) == 1
    desk.clock.advance(1000)
    assert store.reclaim()[1] == 1
    assert store.promote()[1] == 1
    shunted = store.shunt(2, 1000)
    ids = [each.id for each in shunted.leased]
    assert store.ack(acks(shunted.token, *ids[:1]), shunted=True).stale == []
    assert store.postpone(shunted.token, postponed(*ids[1:], delay_ms=10), "t").stale == []
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
    assert desk.schedule(other(), mode="replace") == [("replaced", due)]
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
    with desk.unchanged():
        assert [each.status for each in desk.schedule(other(), mode="replace")] == ["in_flight"]


STREAM = [
    envelope("a"), envelope("b"), envelope("a"), other(), other(), envelope("a", "9d"),
    envelope("a", "7s", expires="8s"), envelope("b", "2s", expires="1s"), other(), other("c"),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["refuse", "replace"])
@pytest.mark.parametrize("state", ["", *STATES, "shunting", "unsure"])
def test_schedule_of_an_id_twice_answers_alike_in_one_call_and_in_many(
    open_desk: Opened, state: str, mode: ScheduleMode
) -> None:
    desks = together, apart = open_desk(), open_desk()
    together.client.hset(together.key("meta"), "generation", apart.generation())
    for desk in desks:
        if state == "unsure":
            claim = desk.unack("a")
            desk.store.bury(claim.token, [burial("a", unsure=True)])
        elif state:
            desk.bring(state, "a")
    options = {"mode": mode, "max_delay_ms": DAY_MS}
    answers = together.schedule(*STREAM, **options)
    assert answers == [apart.schedule(each, **options)[0] for each in STREAM]
    found, expected = together.check(), apart.check()
    for each in (found, expected):
        del each["meta"], each["journal"]
        each["flight"] = {name: packed[12:] for name, packed in each["flight"].items()}  # no token
    assert found == expected
    journals = [[(kind, name) for kind, ids in desk.journal() for name in ids] for desk in desks]
    assert sorted(journals[0]) == sorted(journals[1])


@pytest.mark.parametrize("how", ["cancel", "reschedule", "replace"])
def test_replace_of_a_dead_envelope_that_may_be_out_stays_unsure(desk: Desk, how: str) -> None:
    claim = desk.unack("a")
    desk.store.bury(claim.token, [burial("a", unsure=True)])
    assert [each.status for each in desk.schedule(other(), mode="replace")] == ["replaced"]
    assert (desk.flight_of("a").unsure, desk.flight_of("a").attempt) == (True, 0)
    answers = {
        "cancel": lambda: desk.store.cancel("a"),
        "reschedule": lambda: desk.store.reschedule("a", "+1", YEAR_MS).status,
        "replace": lambda: desk.schedule("a", mode="replace")[0].status,
    }
    assert answers[how]() == "in_flight"
    assert desk.state_of("a") == (None if how == "cancel" else "pending")


def test_schedule_with_replace_that_is_refused_leaves_the_old(desk: Desk) -> None:
    desk.pending("a", "b")
    with desk.unchanged():
        answers = desk.schedule(
            other("a", "9s"), envelope("b", "2s", expires="1s"), mode="replace", max_delay_ms=8000
        )
        assert [each.status for each in answers] == ["too_far", "expires_before_due"]


def row(name: str, remember_ms: int = 0, body: bytes = b"x") -> PackedRow:
    return pack_row(envelope(name, "1d", body=body), remember_ms)


@pytest.fixture
def store(connection: Connection, desk: Desk) -> DelayStore:
    return DelayStore(connection, desk.shard, repeat_for_s=1.0)


def test_schedule_of_packed_rows_stores_what_envelopes_would(desk: Desk, store: DelayStore) -> None:
    answers = store.schedule([row("a"), row("b")], max_delay_ms=YEAR_MS, keeps_answer=False)
    assert [answer.status for answer in answers] == ["accepted", "accepted"]
    assert desk.record_of("a").due_at_ms == answers[0].due_at_ms
    (again,) = desk.store.schedule([envelope("a", "1d", body=b"x")], max_delay_ms=YEAR_MS)
    assert again == ("duplicate", answers[0].due_at_ms)


def test_schedule_of_remembered_rows_without_an_answer_stays_cancelled_when_repeated(
    desk: Desk, store: DelayStore
) -> None:
    rows = [row("a", DAY_MS), row("b", DAY_MS)]
    store.schedule(rows, max_delay_ms=YEAR_MS, keeps_answer=False)
    assert desk.client.hlen(desk.key("memory")) == 0
    assert desk.again(now_ms=None).cancel("a") == "cancelled"
    (answer,) = store.schedule(rows[:1], max_delay_ms=YEAR_MS, keeps_answer=False)
    assert answer.status == "cancelled"


@pytest.mark.parametrize(
    ("remember_ms", "mode", "keeps_answer"),
    [(0, "refuse", False), (DAY_MS, "replace", False), (DAY_MS, "refuse", True)],
)
def test_schedule_that_ids_do_not_guard_keeps_its_answer(
    desk: Desk, store: DelayStore, remember_ms: int, mode: ScheduleMode, keeps_answer: bool
) -> None:
    store.schedule(
        [row("a", remember_ms)], max_delay_ms=YEAR_MS, mode=mode, keeps_answer=keeps_answer
    )
    assert desk.client.hlen(desk.key("memory")) == 1


def test_schedule_with_replace_of_an_unsure_retry_is_in_flight(desk: Desk) -> None:
    desk.retry("a", failed=False, unsure=True)
    before = desk.snapshot()
    assert [each.status for each in desk.schedule(other(), mode="replace")] == ["in_flight"]
    assert desk.snapshot() == before
