"""A message that comes again: the same one, or another life of its id."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from duebridge.store.wire.transitions import Ack
from tests.intake.entrance import Entrance, numbered, queued

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
