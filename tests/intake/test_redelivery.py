"""A message that comes again: the same one, or another life of its id."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from duebridge.envelope import Envelope
from duebridge.errors import StoreUnavailable
from duebridge.ports.source import Arrival
from duebridge.receipt import Receipt
from duebridge.scheduling.route_scheduler import RouteScheduler
from duebridge.store.wire.transitions import Ack
from tests.intake.entrance import Entrance, numbered, queued
from tests.support.desk import DAY_MS

Opened = Callable[..., Entrance]


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


@pytest.mark.parametrize("how", ["delivered", "cancelled"])
@pytest.mark.parametrize(("on_conflict", "key"), [("refuse", b"a"), ("replace", None)])
def test_record_without_a_place_that_comes_again_after_its_end_begins_nothing(
    opened: Opened, how: str, on_conflict: str, key: bytes | None
) -> None:
    entrance = opened(on_conflict=on_conflict)
    record = numbered(7, key=key, x_delay=b"5000")
    entrance.take(record)
    ended(entrance, record.id, how)
    entrance.take(record)
    assert entrance.ids() == []
    entrance.take(numbered(8, key=key, x_delay=b"5000"))
    assert len(entrance.ids()) == 1


def test_later_record_without_a_place_begins_its_key_again_after_its_end(opened: Opened) -> None:
    entrance = opened(on_conflict="replace")
    entrance.take(numbered(7, key=b"a", x_delay=b"5000"))
    ended(entrance, "a", "cancelled")
    entrance.take(numbered(8, key=b"a", x_delay=b"5000"))
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


def redelivered(arrival: Arrival) -> Arrival:
    return replace(arrival, is_redelivered=True)


def reuse(entrance: Entrance, id: str) -> None:
    """Give an id to another message, as a producer does that schedules it."""
    again = Envelope.new(b"other", delay="1h", id=id)
    (reply,) = entrance.route().of(id).schedule([again], max_delay_ms=DAY_MS, remember_ms=60_000)
    assert reply.status == "accepted"


@pytest.mark.parametrize("how", ["delivered", "cancelled"])
@pytest.mark.parametrize("is_over", [False, True])
def test_redelivered_message_whose_id_was_used_again_after_its_end_begins_nothing(
    entrance: Entrance, how: str, is_over: bool
) -> None:
    message = queued("a", x_delay=5000)
    entrance.take(message)
    ended(entrance, "a", how)
    reuse(entrance, "a")
    if is_over:
        ended(entrance, "a", how)
    entrance.take(redelivered(message))
    assert entrance.ids() == ([] if is_over else ["a"])


def test_message_taken_in_again_after_a_fault_and_a_reuse_of_its_id_begins_nothing(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_batch, failures = RouteScheduler.store_batch, [StoreUnavailable("away")]

    def lose_the_answer(*given: Any, **options: Any) -> list[Receipt]:
        receipts = store_batch(*given, **options)
        if failures:
            raise failures.pop()
        return receipts

    monkeypatch.setattr(RouteScheduler, "store_batch", lose_the_answer)
    assert entrance.take(queued("a", x_delay=5000)) == 0
    ended(entrance, "a", "cancelled")
    reuse(entrance, "a")
    assert entrance.loop.run_once() == 1
    assert entrance.ids() == ["a"]


def test_redelivered_messages_of_one_id_after_their_ends_begin_nothing(entrance: Entrance) -> None:
    first, second = queued("a", b"1", x_delay=5000), queued("a", b"2", x_delay=5000)
    entrance.take(first, second)
    for id_ in entrance.ids():
        ended(entrance, id_, "delivered")
    for _ in range(2):
        entrance.take(redelivered(first), redelivered(second))
        assert entrance.ids() == []


def test_redelivered_message_that_waits_beside_an_ended_id_begins_nothing(
    entrance: Entrance,
) -> None:
    first, second = queued("a", b"1", x_delay=5000), queued("a", b"2", x_delay=5000)
    entrance.take(first, second)
    _, beside = entrance.ids()
    ended(entrance, "a", "delivered")
    entrance.take(redelivered(first), redelivered(second))
    assert entrance.ids() == [beside]


def test_redelivered_message_of_a_known_id_that_was_never_taken_in_is_stored(
    entrance: Entrance,
) -> None:
    entrance.take(queued("a", b"1", x_delay=5000))
    ended(entrance, "a", "cancelled")
    reuse(entrance, "a")
    entrance.take(redelivered(queued("a", b"2", x_delay=5000)))
    assert len(entrance.ids()) == 2


def test_message_beside_a_living_id_sent_again_after_its_end_begins_anew(
    entrance: Entrance,
) -> None:
    first, second = queued("a", b"1", x_delay=5000), queued("a", b"2", x_delay=5000)
    entrance.take(first, second)
    ids = entrance.ids()
    ended(entrance, ids[1], "delivered")
    entrance.take(redelivered(second))
    assert entrance.ids() == ["a"]
    entrance.take(second)
    assert entrance.ids() == ids
