"""The loop: a message is settled once the store, or the dead-letter target, has it."""

from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from duebridge.envelope import Target
from duebridge.ports.source import Arrival
from tests.intake.entrance import LOG, Entrance, placed, queued
from tests.support.redis.redis_node import RedisNode
from tests.support.servers import wait_until

Opened = Callable[..., Entrance]


def test_take_in_stores_and_then_settles(entrance: Entrance) -> None:
    assert entrance.take(queued("a", x_delay=5000, tenant="t"), queued("b")) == 2

    assert [each.id for each in entrance.queue.settled] == ["a", "b"]
    assert entrance.due_in_ms("a") in (5000, 5001)  # rounded up
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


def test_take_in_again_by_another_remember_stores_nothing_more(opened: Opened) -> None:
    entrance = opened(remember="7m")
    entrance.take(queued("m", x_delay=60_000))
    (entry,) = (store.get("m") for store in entrance.route().shards if store.get("m"))
    assert entry is not None
    assert entry.record is not None
    assert entry.record.remember_ms == 420_000
    longer = entrance.config.intakes["in"].model_copy(update={"remember": 3_600_000})
    entrance.start_again(entrance.config.model_copy(update={"intakes": {"in": longer}}))
    entrance.take(queued("m", x_delay=60_000))
    assert entrance.ids() == ["m"]


def test_take_in_without_id_stores_each(entrance: Entrance) -> None:
    entrance.take(queued("", x_delay=5000), queued("", x_delay=5000))

    assert len(entrance.ids()) == 2


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


def test_large_batch_is_stored_while_the_one_before_is_settled_and_the_next_is_read(
    entrance: Entrance,
) -> None:
    entrance.queue.put(*(placed(number, x_delay=b"5000") for number in range(1200)))

    turns = []
    for _ in range(4):
        stored = entrance.loop.run_once()
        turns.append((stored, len(entrance.queue.settled), entrance.queue.waiting))
    assert turns == [(500, 0, 200), (500, 500, 0), (200, 1200, 0), (0, 1200, 0)]
    assert len(set(entrance.ids())) == 1200
    assert [each.place.offset for each in entrance.queue.settled if each.place] == [*range(1200)]


def test_settle_that_fails_with_two_batches_in_hand_brings_both_again(entrance: Entrance) -> None:
    def go_away(_: object) -> None:
        entrance.queue.is_available = False

    entrance.publisher.script(go_away)
    refused = placed(0, x_delay=b"soon")
    entrance.queue.put(refused, *(placed(number, x_delay=b"5000") for number in range(1, 900)))
    assert [entrance.loop.run_once() for _ in range(2)] == [500, 0]
    assert entrance.queue.waiting == 900

    entrance.queue.is_available = True
    entrance.publisher.script(lambda _: None)
    assert [entrance.loop.run_once() for _ in range(3)] == [500, 400, 0]
    assert len(set(entrance.ids())) == 899


def test_swap_under_an_intake_that_always_has_more_takes_effect(entrance: Entrance) -> None:
    entrance.queue.put(*(placed(number, x_delay=b"5000") for number in range(1500)))
    entrance.loop.run_once()
    entrance.loop.swap(entrance.config.model_copy(update={"allow_absent": ("gone",)}))

    assert (entrance.loop.run_once(), entrance.queue.waiting) == (500, 500)
    assert (entrance.loop.run_once(), entrance.queue.waiting) == (500, 0)


def test_source_that_goes_away_under_a_large_batch_brings_it_again(entrance: Entrance) -> None:
    take = entrance.queue.take

    def take_once(*bounds: Any) -> list[Arrival]:
        entrance.queue.is_available = entrance.queue.waiting == 700
        return take(*bounds)

    entrance.queue.take = take_once  # type: ignore[method-assign]
    entrance.queue.put(*(placed(number, x_delay=b"5000") for number in range(700)))
    assert entrance.loop.run_once() == 0
    assert (entrance.queue.settled, entrance.queue.waiting) == ([], 700)

    entrance.queue.take = take  # type: ignore[method-assign]
    entrance.queue.is_available = True
    assert [entrance.loop.run_once() for _ in range(3)] == [500, 200, 0]
    assert len(set(entrance.ids())) == 700


def test_stop_with_two_batches_in_hand_settles_both_and_takes_no_third(entrance: Entrance) -> None:
    stop = Event()
    entrance.queue.put(*(placed(number, x_delay=b"5000") for number in range(1500)))
    settle = entrance.loop.source.settle

    def settle_and_stop(arrivals: Sequence[Arrival]) -> None:
        stop.set()
        settle(arrivals)

    entrance.loop.source.settle = settle_and_stop  # type: ignore[method-assign]
    entrance.loop.run(stop)
    assert (len(entrance.queue.settled), entrance.queue.waiting) == (1000, 500)


def test_batch_that_is_stored_after_give_up_is_settled_though_the_next_is_in_hand(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = vars(entrance.loop)["_store"]
    carry_out = store.carry_out

    def carried_out(*given: Any, **named: Any) -> Any:
        entrance.loop.give_up()
        return carry_out(*given, **named)

    monkeypatch.setattr(store, "carry_out", carried_out)
    assert entrance.take(*(placed(number, x_delay=b"5000") for number in range(700))) == 500
    assert len(entrance.queue.settled) == 500


def test_source_that_is_away_is_told_and_asked_again(entrance: Entrance) -> None:
    entrance.queue.is_available = False
    assert entrance.take(queued("a")) == 0
    assert entrance.loop.is_up() is False

    entrance.queue.is_available = True
    assert entrance.loop.run_once() == 1
    assert entrance.loop.is_up() is True


@pytest.mark.parametrize(
    "error", [OSError(24, "too many open files"), MemoryError(), RuntimeError("no new thread")]
)
def test_intake_goes_on_after_its_source_raised(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    receive, raised = entrance.loop.source.receive, iter([error] * 3)

    def received(wait_s: float) -> Sequence[Arrival]:
        if (fault := next(raised, None)) is not None:
            raise fault
        return receive(wait_s)

    monkeypatch.setattr(entrance.loop.source, "receive", received)
    entrance.queue.put(*(queued(f"a{n}", x_delay=5000) for n in range(5)))
    stop = Event()
    thread = Thread(target=entrance.loop.run, args=(stop,))
    with capture_logs() as logs:
        thread.start()
        wait_until(lambda: len(entrance.queue.settled) == 5, "all to be taken in")
        stop.set()
        thread.join()
    assert len(entrance.ids()) == 5
    said = [each for each in logs if each["event"] in ("intake_failed", "intake_works")]
    assert [each["event"] for each in said] == ["intake_failed", "intake_works"]
    assert (said[0]["exc_info"], said[1]["failures"]) == (True, 3)


def test_position_of_a_log_that_the_source_asked_for_is_kept(entrance: Entrance) -> None:
    entrance.take(placed(4))
    assert entrance.stored_positions.read(LOG) is None

    assert entrance.positions.read(LOG) is None  # as the source of a stream at its connect
    entrance.take(queued("a"), placed(5), placed(6))
    assert entrance.stored_positions.read(LOG) == 6
    entrance.take(placed(5))
    assert entrance.stored_positions.read(LOG) == 6


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
    assert 0 <= entrance.due_in_ms("order-1/1") <= 1000
    assert entrance.reasons() == ["attempts_exhausted"]
    (letter,) = entrance.letters()
    told = "the consumer failed 3 times, of max_attempts 3 (x-round 2)"
    assert dict(letter.headers)["x-dlq-error-message"] == told


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


def test_store_that_is_away_keeps_the_batch_and_takes_nothing_more(own_redis: RedisNode) -> None:
    entrance = Entrance(own_redis.url)
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


def test_store_that_is_slow_keeps_the_place_in_the_group_and_loses_nothing(
    own_redis: RedisNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duebridge.intake.intake.KEEP_ALIVE_S", 0.01)
    entrance = Entrance(own_redis.url)
    entrance.take(queued("a"))
    own_redis.ask("CLIENT", "PAUSE", 60_000, "WRITE")
    kept_alive: list[None] = []

    def keep_alive() -> None:
        kept_alive.append(None)
        if len(kept_alive) == 3:
            own_redis.ask("CLIENT", "UNPAUSE")

    monkeypatch.setattr(entrance.loop.source, "keep_alive", keep_alive)
    assert entrance.take(queued("b")) == 1
    assert len(kept_alive) >= 3
    assert entrance.ids() == ["a", "b"]


def test_store_that_is_full_slows_the_intake_and_loses_nothing(own_redis: RedisNode) -> None:
    entrance = Entrance(own_redis.url)
    entrance.take(queued("a"))
    own_redis.ask("CONFIG", "SET", "maxmemory", "1")

    assert entrance.take(queued("b")) == 0
    assert (len(entrance.queue.settled), entrance.queue.waiting) == (1, 0)

    own_redis.ask("CONFIG", "SET", "maxmemory", "0")
    assert entrance.loop.run_once() == 1
    assert entrance.ids() == ["a", "b"]


def test_loop_that_stands_still_counts_the_seconds(entrance: Entrance) -> None:
    entrance.now_s = 61.0
    assert entrance.loop.idle_s() == 61.0
    entrance.take(queued("a"))
    assert entrance.loop.idle_s() == 0.0


def test_records_with_and_without_a_time_in_a_batch_are_stored_in_the_order_of_the_log(
    opened: Opened,
) -> None:
    entrance = opened()
    first, timeless, last = (placed(n, x_route=b"s", x_delay=b"5000") for n in (1, 2, 3))
    entrance.take(first, replace(timeless, is_id_unique=False), last)
    assert entrance.ids("s") == [first.id, timeless.id, last.id]
    assert len(entrance.queue.settled) == 3
