"""Hints to sleeping workers: only of what is earlier than they know."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.store.desk import Desk, envelope

WITHIN_S = 5.0


class Listener:
    """Subscribed to a shard's channel; `heard` ends with a message of its own, so no one waits."""

    def __init__(self, desk: Desk) -> None:
        self._client, self._channel = desk.client, desk.shard.wake
        self._pubsub = self._client.pubsub()
        self._pubsub.subscribe(self._channel)
        assert self._next()["type"] == "subscribe"

    def heard(self) -> list[int]:
        self._client.publish(self._channel, "end")
        found = []
        while (data := self._next()["data"]) != b"end":
            found.append(int(data))
        return found

    def _next(self) -> Any:
        message = self._pubsub.get_message(timeout=WITHIN_S)
        assert message is not None, "nothing came"
        return message

    def close(self) -> None:
        self._pubsub.close()


@pytest.fixture
def listener(desk: Desk) -> Iterator[Listener]:
    opened = Listener(desk)
    yield opened
    opened.close()


def test_schedule_wakes_for_the_first_and_for_an_earlier_one(
    desk: Desk, listener: Listener
) -> None:
    desk.pending(envelope("a", "5s"))
    desk.pending(envelope("b", "4s"), envelope("c", "3s"))
    assert listener.heard() == [desk.clock() + 5000, desk.clock() + 3000]


def test_schedule_wakes_for_nothing_later_or_refused(desk: Desk, listener: Listener) -> None:
    desk.pending(envelope("a", "5s"))
    listener.heard()
    desk.pending(envelope("b", "5s"), envelope("c", "9s"))
    desk.schedule(envelope("a", "1s"), envelope("d", "4s", expires="1s"))
    assert listener.heard() == []


def test_reschedule_wakes_for_an_earlier_instant_only(desk: Desk, listener: Listener) -> None:
    desk.pending(envelope("a", "5s"), envelope("b", "5s"))
    listener.heard()
    desk.store.reschedule("a", "+9000", 10**6)
    assert listener.heard() == []
    desk.store.reschedule("b", "+1000", 10**6)
    assert listener.heard() == [desk.clock() + 1000]


def test_replay_wakes(desk: Desk, listener: Listener) -> None:
    desk.dead("a")
    listener.heard()
    desk.store.replay(["a"], [70])
    assert listener.heard() == [desk.clock() + 70]


def test_release_wakes_unless_it_was_stale(desk: Desk, listener: Listener) -> None:
    claim = desk.unack("a")
    listener.heard()
    desk.store.release(claim.token, ["a"])
    assert listener.heard() == [desk.clock()]
    desk.store.release(claim.token, ["a"])
    assert listener.heard() == []


def test_read_only_and_settling_calls_wake_nobody(desk: Desk, listener: Listener) -> None:
    claim = desk.unack("a", "b")
    listener.heard()
    desk.store.next()
    desk.store.stats()
    desk.store.ack(claim.token, ["a"])
    desk.store.cancel("b")
    assert listener.heard() == []
