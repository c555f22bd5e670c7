"""An intake that replaces and cancels by key: in the order of the log, also beside a delivery."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from duebridge.ports.source import Arrival
from duebridge.store.wire.leases import Claim
from duebridge.store.wire.transitions import Ack
from tests.intake.entrance import Entrance, placed, queued
from tests.support.desk import remembering

Opened = Callable[..., Entrance]
PAST = b"1700000000000"  # a delay of 0 is due at the next ms


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
    assert entrance.due_in_ms("a") in (7000, 7001)
    assert len(entrance.queue.settled) == 6


def test_messages_with_and_without_a_key_in_a_batch_are_stored_in_the_order_of_the_log(
    opened: Opened,
) -> None:
    """Stored in another order, the place of one would be behind that of another: a duplicate."""
    entrance = opened(on_conflict="replace")
    one_shard = {"x_route": b"s", "x_delay": b"5000"}
    without, keyed = placed(1, **one_shard), placed(2, key=b"a", **one_shard)
    last, wrong = placed(4, **one_shard), placed(3, key=b"b", x_route=b"s", x_delay=b"soon")
    entrance.take(without, keyed, wrong, last)

    assert entrance.ids("s") == ["a", without.id, last.id]
    assert entrance.reasons() == ["invalid"]
    assert len(entrance.queue.settled) == 4


@pytest.mark.parametrize("name", [{"key": b"a"}, {"message_id": "a"}], ids=["key", "message_id"])
def test_same_key_replaces_only_from_a_later_place(opened: Opened, name: dict[str, Any]) -> None:
    entrance = opened(on_conflict="replace")
    first, later = (placed(n, f"{n}".encode(), **name, x_delay=b"5000") for n in (1, 2))
    entrance.take(first, later)
    entrance.take(first)  # a redelivery

    entry = entrance.get("a")
    assert entry is not None
    assert entry.content is not None
    assert entry.content.body == b"2"
    assert entrance.ids() == ["a"]
    entrance.take(placed(3, b"", **name, x_cancel=b""))
    assert entrance.ids() == []


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


Sender = Callable[..., Arrival]


def of_a_log() -> Sender:
    offsets = count(1)
    return lambda key, body, **headers: placed(next(offsets), body, key=key.encode(), **headers)


def of_a_stream() -> Sender:
    offsets = count(1)
    return lambda name, body, **headers: placed(next(offsets), body, message_id=name, **headers)


def deliver(entrance: Entrance, claims: list[Claim]) -> None:
    for shard, claim in zip(entrance.route().shards, claims, strict=True):
        shard.ack([Ack(each, claim.token) for each in claim.ids])


@pytest.mark.parametrize("is_delivered", [True, False])
@pytest.mark.parametrize(
    "message", [of_a_log(), of_a_stream(), queued], ids=["log", "stream", "queue"]
)
def test_key_reaches_what_is_stored_beside_its_delivery(
    opened: Opened, is_delivered: bool, message: Sender
) -> None:
    entrance = opened(on_conflict="replace")
    names = [f"key-{number}" for number in range(6)]
    entrance.take(*(message(name, b"1", x_deliver_at=PAST) for name in names))
    claims = [shard.claim(9, 60_000, promote=9) for shard in entrance.route().shards]
    entrance.take(*(message(name, b"2", x_delay=b"5000") for name in names))
    assert len(entrance.ids()) == 6
    if is_delivered:
        deliver(entrance, claims)
    entrance.take(*(message(name, b"3", x_delay=b"5000") for name in names[:3]))
    entrance.take(*(message(name, b"", x_cancel=b"") for name in names[3:]))

    found = [entrance.get(each) for each in entrance.ids()]
    assert [each.content.body for each in found if each and each.content] == [b"3"] * 3
    assert {each.partition("~")[0] for each in entrance.ids()} == set(names[:3])


def claims_of(entrance: Entrance) -> list[Claim]:
    return [shard.claim(9, 60_000, promote=9) for shard in entrance.route().shards]


def test_content_replaced_beside_is_stored_again_when_it_comes_later(opened: Opened) -> None:
    entrance = opened(on_conflict="replace")
    entrance.take(queued("m", b"1", x_deliver_at=PAST))
    claims_of(entrance)
    entrance.take(queued("m", b"2", x_delay=b"5000"))
    entrance.take(queued("m", b"3", x_deliver_at=PAST))
    claims_of(entrance)  # the third, under the id of the second

    entrance.take(queued("m", b"2", x_delay=b"5000"))
    (newest,) = entrance.ids()
    found = entrance.get(newest)
    assert found
    assert found.content
    assert found.content.body == b"2"
    assert entrance.letters() == []


def test_new_message_with_content_delivered_beside_is_stored_again(opened: Opened) -> None:
    entrance = opened(on_conflict="replace")
    entrance.take(queued("m", b"1", x_deliver_at=PAST))
    claims_of(entrance)
    second = queued("m", b"2", x_deliver_at=PAST)
    entrance.take(second)
    for shard, claim in zip(entrance.route().shards, claims_of(entrance), strict=True):
        shard.ack(remembering(claim))
    assert entrance.ids() == []

    entrance.take(replace(second, is_redelivered=True))
    assert entrance.ids() == []
    entrance.take(second)
    assert len(entrance.ids()) == 1
