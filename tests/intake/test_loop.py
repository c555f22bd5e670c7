"""The loop: a message is settled once the store, or the dead-letter target, has it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from duebridge.envelope import Target
from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.ports.source import Arrival
from duebridge.store.wire.transitions import Ack
from tests.intake.entrance import DEAD, LOG, Entrance, placed, queued
from tests.support.redis_sets import RedisNode, server

Opened = Callable[..., Entrance]
PAST = b"1700000000000"  # a delay of 0 is due at the next ms


def due_in_ms(entrance: Entrance, id: str, route: str = "r") -> int:
    entry = entrance.get(id, route)
    assert entry is not None
    assert entry.record is not None
    return entry.record.due_at_ms - entry.record.scheduled_at_ms


def test_take_in_stores_and_then_settles(entrance: Entrance) -> None:
    assert entrance.take(queued("a", x_delay=5000, tenant="t"), queued("b")) == 2

    assert [each.id for each in entrance.queue.settled] == ["a", "b"]
    assert due_in_ms(entrance, "a") in (5000, 5001)  # rounded up
    entry = entrance.get("a")
    assert entry is not None
    assert entry.content is not None
    assert (entry.content.body, entry.content.headers) == (b"body", (("tenant", "t"),))


def test_take_in_goes_to_the_route_that_the_message_names(entrance: Entrance) -> None:
    entrance.take(queued("a"), queued("b", x_route=b"s"))

    assert (entrance.ids("r"), entrance.ids("s")) == (["a"], ["b"])


def test_take_in_again_stores_nothing_more(entrance: Entrance) -> None:
    messages = [queued("a", x_delay=5000), placed(7, x_delay=b"5000")]
    entrance.take(*messages)
    entrance.take(*messages)

    assert len(entrance.ids()) == 2
    assert len(entrance.queue.settled) == 4


def test_take_in_other_content_under_an_id_is_stored_beside_it(entrance: Entrance) -> None:
    entrance.take(queued("a", x_delay=5000), queued("a", b"other", x_delay=5000))
    entrance.take(queued("a", b"other", x_delay=5000))

    first, beside = entrance.ids()
    assert first == "a"
    assert beside.startswith("a~")
    assert len(beside) == 18
    assert entrance.letters() == []


def test_take_in_without_id_stores_each(entrance: Entrance) -> None:
    entrance.take(queued("", x_delay=5000), queued("", x_delay=5000))

    assert len(entrance.ids()) == 2


@pytest.mark.parametrize(
    ("arrival", "reason"),
    [
        (queued("a", x_delay=-1), "invalid"),
        (queued("a", x_delay=31 * 86_400_000), "invalid"),
        (queued("a", b"x" * 1025), "too_large"),
        (queued("a", scheduler_target_topic="secret"), "unroutable"),
        (queued("a", x_route="nowhere"), "unroutable"),
    ],
)
def test_refused_message_is_confirmed_as_a_letter_before_it_is_settled(
    entrance: Entrance, arrival: Arrival, reason: str
) -> None:
    entrance.take(queued("b"), arrival, queued("c"))

    (letter,) = entrance.letters()
    assert (letter.target, letter.body, letter.id) == (DEAD, arrival.body, "a")
    assert letter.headers[: len(arrival.headers)] == arrival.headers
    assert entrance.reasons() == [reason]
    assert dict(letter.headers)["x-dlq-error-message"]
    assert entrance.ids() == ["b", "c"]
    assert len(entrance.queue.settled) == 3


def test_letter_that_is_not_confirmed_holds_the_batch(entrance: Entrance) -> None:
    confirms: list[bool] = [False]
    failed = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "E", "no topic")
    entrance.publisher.script(lambda _: None if confirms[0] else failed)

    assert entrance.take(queued("a", x_delay="soon"), queued("b", x_delay=1000)) == 0
    assert entrance.loop.run_once() == 0
    assert entrance.queue.settled == []
    assert entrance.queue.kept_alive == 2
    entrance.now_s += 3.0
    assert entrance.loop.waiting_s() == 3.0
    assert entrance.ids() == ["b"]

    confirms[0] = True
    assert entrance.loop.run_once() == 2
    assert entrance.reasons() == ["invalid"]
    assert entrance.loop.waiting_s() == 0


def test_letters_that_were_confirmed_are_not_sent_again(entrance: Entrance) -> None:
    held = {"b"}
    failed = Outcome(Verdict.REJECTED, Reason.TOO_LARGE, "E", "too large")
    entrance.publisher.script(lambda each: failed if each.id in held else None)

    entrance.take(*(queued(name, x_delay="soon") for name in "abc"))
    held.clear()
    entrance.loop.run_once()

    assert [each.id for each in entrance.letters()] == ["a", "c", "b"]


def test_settle_that_fails_brings_the_messages_again_and_stores_them_once(
    entrance: Entrance,
) -> None:
    def go_away(_: object) -> None:
        entrance.queue.is_available = False

    entrance.publisher.script(go_away)
    messages = [queued("a", x_delay=5000), placed(1, x_delay=b"5000"), queued("x", x_delay="soon")]
    assert entrance.take(*messages) == 0
    assert entrance.queue.waiting == 3

    entrance.queue.is_available = True
    entrance.publisher.script(lambda _: None)
    assert entrance.loop.run_once() == 3
    assert len(entrance.ids()) == 2
    assert [each.id for each in entrance.letters()] == ["x", "x"]


def test_source_that_is_away_is_told_and_asked_again(entrance: Entrance) -> None:
    entrance.queue.is_available = False
    assert entrance.take(queued("a")) == 0
    assert (entrance.loop.has_answered, bool(entrance.loop.error)) == (False, True)

    entrance.queue.is_available = True
    assert entrance.loop.run_once() == 1
    assert (entrance.loop.has_answered, entrance.loop.error) == (True, "")


def test_cancel_in_a_batch_keeps_the_order(opened: Opened) -> None:
    entrance = opened(on_conflict="replace")
    entrance.take(
        placed(1, key=b"a", x_delay=b"5000"),
        placed(2, key=b"b", x_delay=b"5000"),
        placed(3, None, key=b"a"),
        placed(4, b"new", key=b"a", x_delay=b"7000"),
        placed(5, b"x", key=b"b", x_cancel=b""),
        placed(6, b"x", x_cancel=b"nobody"),
    )

    assert entrance.ids() == ["a"]
    assert due_in_ms(entrance, "a") in (7000, 7001)
    assert len(entrance.queue.settled) == 6


def test_same_key_replaces_only_from_a_later_place(opened: Opened) -> None:
    entrance = opened(on_conflict="replace")
    first, later = (placed(n, f"{n}".encode(), key=b"a", x_delay=b"5000") for n in (1, 2))
    entrance.take(first, later)
    entrance.take(first)  # a redelivery

    entry = entrance.get("a")
    assert entry is not None
    assert entry.content is not None
    assert entry.content.body == b"2"


def test_replacement_of_what_is_on_its_way_is_stored_beside_it(opened: Opened) -> None:
    entrance = opened(on_conflict="replace")
    entrance.take(placed(1, b"1", key=b"a", x_deliver_at=PAST))
    shard = entrance.route().of("a")
    shard.promote()
    assert len(shard.claim(1, 60_000).leased) == 1

    second = placed(2, b"2", key=b"a", x_delay=b"5000")
    entrance.take(second)
    entrance.take(second)

    (beside,) = entrance.ids()
    assert beside.startswith("a~box:late:0:2:1700000000000")
    assert entrance.letters() == []


def test_replacements_beside_are_stored_though_other_shards_are_further(opened: Opened) -> None:
    entrance = opened(on_conflict="replace")
    names = [f"key-{number}" for number in range(9)]
    first = [placed(n, b"1", key=key.encode(), x_deliver_at=PAST) for n, key in enumerate(names)]
    entrance.take(*first)
    shards = entrance.route().shards
    assert sum(shard.claim(9, 60_000, promote=9).taken for shard in shards) == 9

    entrance.take(
        *(placed(20 + n, b"2", key=name.encode()) for n, name in enumerate(names)),
        *(placed(40 + n, key=b"other-%d" % n) for n in range(9)),
    )

    beside = [each.partition("~")[0] for each in entrance.ids() if "~" in each]
    assert sorted(beside) == names


def test_position_of_a_log_that_the_source_asked_for_is_kept(entrance: Entrance) -> None:
    entrance.take(placed(4))
    assert entrance.kept.read(LOG) is None

    assert entrance.positions.read(LOG) is None  # as the source of a stream at its connect
    entrance.take(queued("a"), placed(5), placed(6))
    assert entrance.kept.read(LOG) == 6
    entrance.take(placed(5))
    assert entrance.kept.read(LOG) == 6


def test_declared_message_is_due_where_it_was_meant_for(opened: Opened) -> None:
    entrance = opened(declare={"exchange": "delayed"})
    onward = Target("box", exchange="delayed.due", routing_key="invoice.late")
    entrance.take(Arrival(b"body", id="a", headers=(("x-delay", 5000),), onward=onward))

    entry = entrance.get("a")
    assert entry is not None
    assert entry.content is not None
    assert entry.content.target == onward


def test_retries_of_a_consumer_end_dead_with_their_rounds(opened: Opened) -> None:
    entrance = opened(to="origin")
    entrance.take(placed(1, x_message_id=b"order-1", x_attempt=b"1", x_route=b"r", tenant=b"t"))
    entrance.take(placed(2, x_message_id=b"order-1/1", x_round=b"1", x_origin=b"orders"))
    entrance.take(placed(3, x_message_id=b"order-1/2", x_round=b"2", x_origin=b"orders"))

    assert entrance.ids() == ["order-1/1", "order-1/2"]
    first = entrance.get("order-1/1")
    assert first is not None
    assert first.content is not None
    assert first.content.target == Target("box", topic="orders")
    assert first.content.headers == (
        ("tenant", b"t"),
        ("x-round", "1"),
        ("x-origin", "orders"),
        ("x-origin-timestamp", "1700000000000"),
    )
    assert 0 <= due_in_ms(entrance, "order-1/1") <= 1000
    assert entrance.reasons() == ["attempts_exhausted"]


def test_routes_of_a_changed_file_reach_the_next_batch(entrance: Entrance) -> None:
    entrance.take(queued("a", x_route="t"))
    config = entrance.config
    new = config.model_copy(update={"routes": {**config.routes, "t": config.routes["s"]}})
    new.routes["t"] = new.routes["t"].model_copy(update={"name": "t"})
    entrance.config = new
    entrance.loop.swap(new)
    entrance.take(queued("b", x_route="t"))

    assert entrance.reasons() == ["unroutable"]
    assert entrance.ids("t") == ["b"]


def test_message_whose_letter_was_not_out_is_taken_in_once_its_route_allows_it(
    entrance: Entrance,
) -> None:
    entrance.publisher.is_available = False
    messages = [placed(number, b"x" * size) for number, size in ((1, 2000), (2, 1), (3, 1))]
    assert entrance.take(*messages) == 0

    routes = entrance.config.routes
    allowing = {**routes, "r": routes["r"].model_copy(update={"max_body": 4096})}
    entrance.start_again(entrance.config.model_copy(update={"routes": allowing}))

    assert entrance.take(*messages) == 3
    assert len(entrance.ids()) == 3


def test_envelope_that_could_not_be_read_again_is_refused_alone(entrance: Entrance) -> None:
    beyond = Arrival(b"body", id="big", key=b"k" * 2**21)
    entrance.take(queued("a"), beyond, queued("b"))

    assert entrance.ids() == ["a", "b"]
    assert entrance.reasons() == ["too_large"]

    entrance.take(placed(1), placed(2, key=b"k" * 2**21), placed(3))
    assert len(entrance.ids()) == 4
    assert entrance.reasons() == ["too_large"] * 2


@pytest.fixture
def own_redis(tmp_path: Path):
    node = server(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always")
    node.start()
    yield node
    node.kill()


def test_store_that_is_away_keeps_the_batch_and_takes_nothing_more(own_redis: RedisNode) -> None:
    entrance = Entrance(f"redis://127.0.0.1:{own_redis.port}/0")
    entrance.take(queued("a"))
    own_redis.kill()

    assert entrance.take(queued("b"), placed(1), queued("c")) == 0
    entrance.queue.put(queued("d"))
    assert entrance.loop.run_once() == 0
    assert (len(entrance.queue.settled), entrance.queue.waiting) == (1, 1)

    own_redis.start()
    assert entrance.loop.run_once() == 3
    assert entrance.loop.run_once() == 1
    assert entrance.ids() == sorted(["a", "b", "box:late:0:1:1700000000000", "c", "d"])
    assert len(entrance.queue.settled) == 5


def test_store_that_is_full_slows_the_intake_and_loses_nothing(own_redis: RedisNode) -> None:
    entrance = Entrance(f"redis://127.0.0.1:{own_redis.port}/0")
    entrance.take(queued("a"))
    own_redis.ask("CONFIG", "SET", "maxmemory", "1")

    assert entrance.take(queued("b")) == 0
    assert (len(entrance.queue.settled), entrance.queue.waiting) == (1, 0)

    own_redis.ask("CONFIG", "SET", "maxmemory", "0")
    assert entrance.loop.run_once() == 1
    assert entrance.ids() == ["a", "b"]


def test_record_says_what_waits_and_for_what(entrance: Entrance) -> None:
    failed = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "E", "no topic")
    entrance.publisher.script(lambda _: failed)
    entrance.take(queued("a", x_delay="soon"), queued("b"))

    entrance.now_s += 2.0
    record = entrance.loop.record()
    assert (record.name, record.is_up, record.lag) == ("in", True, 2)
    assert record.error == "1 dead letters target_failed: E: no topic"
    assert record.waiting_ms == 2000


def test_loop_that_stands_still_counts_the_seconds(entrance: Entrance) -> None:
    entrance.now_s = 61.0
    assert entrance.loop.idle_s() == 61.0
    entrance.take(queued("a"))
    assert entrance.loop.idle_s() == 0.0


def ended(entrance: Entrance, id: str, how: str) -> None:
    """End an envelope that is remembered: deliver it, or cancel it."""
    shard = entrance.route().of(id)
    if how == "cancelled":
        assert shard.cancel(id) == "cancelled"
        return
    assert shard.reschedule(id, "1", 1000).status == "rescheduled"
    shard.promote()
    claim = shard.claim(10, 1000)
    assert claim.taken == 1
    given = [each.record for each in claim.leased]
    shard.ack([Ack(id, claim.token, each.remember_ms, each.content_hash) for each in given])


@pytest.mark.parametrize("how", ["delivered", "cancelled"])
@pytest.mark.parametrize("on_conflict", ["refuse", "replace"])
def test_message_sent_again_after_its_end_begins_anew_unless_it_is_redelivered(
    opened: Opened, how: str, on_conflict: str
) -> None:
    entrance = opened(on_conflict=on_conflict)
    entrance.take(queued("a", x_delay=5000))
    ended(entrance, "a", how)
    entrance.take(replace(queued("a", x_delay=5000), is_redelivered=True))
    assert entrance.ids() == []
    entrance.take(queued("a", x_delay=5000))
    assert entrance.ids() == ["a"]


@pytest.mark.parametrize("id", ["a", "a~b", ""])
def test_delivery_that_a_program_publishes_again_is_another_message(
    entrance: Entrance, id: str
) -> None:
    delivered = {"x_attempt": "1", "x_message_id": id, "x_due_at": "1795404543752"}
    entrance.take(queued(id, x_delay=5000))
    again = queued(id, x_delay=5000, **delivered)
    entrance.take(again)
    assert len(entrance.ids()) == 2
    if id:
        entrance.take(replace(again, is_redelivered=True))
        assert len(entrance.ids()) == 2


def test_exhausted_message_is_taken_in_once_its_route_has_more_attempts(opened: Opened) -> None:
    entrance = opened(to="origin", source={"broker": "box", "queue": "q"})
    entrance.publisher.is_available = False
    last = placed(1, x_round=b"2", x_message_id=b"first/2")
    others = [placed(number) for number in range(2, 8)]
    entrance.queue.put(last, *others)
    assert entrance.loop.run_once() == 0

    routes = entrance.config.routes
    retry = routes["r"].retry.model_copy(update={"max_attempts": 9})
    allowing = {**routes, "r": routes["r"].model_copy(update={"retry": retry})}
    entrance.start_again(entrance.config.model_copy(update={"routes": allowing}))
    entrance.take(last, *others)
    assert "first/3" in entrance.ids()
