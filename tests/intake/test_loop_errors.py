"""Errors that nobody expects, at any place of the loop: no message is passed, and none is stuck."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from duebridge.errors import ConfigError
from duebridge.headers import ERROR_CHARACTERS
from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.ports.source import Arrival
from tests.intake.entrance import LOG, Entrance, placed, queued
from tests.support.redis.redis_node import RedisNode

LOOP = "duebridge.intake.intake"


def failing(call: Callable[..., Any], at: int, *, after: bool = False) -> Callable[..., Any]:
    """Return a call that raises at its call of this number, after its work or instead of it."""
    calls = iter(range(1, 1_000_000))

    def called(*given: Any, **more: Any) -> Any:
        is_failing = next(calls) == at
        if is_failing and not after:
            raise MemoryError
        answer = call(*given, **more)
        if is_failing:
            raise MemoryError
        return answer

    return called


def taken_in(entrance: Entrance, *arrivals: Arrival) -> list[str]:
    """Take all in, over an error that comes once; return the ids of what was settled."""
    with pytest.raises(MemoryError):
        entrance.take(*arrivals)
    while entrance.loop.run_once():
        pass
    return [each.id for each in entrance.queue.settled]


@pytest.mark.parametrize("at", [1, 2])
def test_error_before_a_received_batch_is_in_hand_brings_the_messages_again(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    from duebridge.intake.unsettled_batch import UnsettledBatch

    monkeypatch.setattr(f"{LOOP}.UnsettledBatch", failing(UnsettledBatch, at))
    messages = [placed(number, x_delay=b"5000") for number in range(700)]
    assert taken_in(entrance, *messages) == [each.id for each in messages]
    assert len(set(entrance.ids())) == 700


@pytest.mark.parametrize("after", [True, False])
def test_error_of_a_receive_brings_the_messages_again(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    source = entrance.loop.source
    monkeypatch.setattr(source, "receive", failing(source.receive, 1, after=after))
    assert taken_in(entrance, queued("a"), queued("b")) == ["a", "b"]


def test_error_of_a_settle_brings_the_messages_again(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = entrance.loop.source
    monkeypatch.setattr(source, "settle", failing(source.settle, 1))
    messages = [placed(number, x_delay=b"5000") for number in range(700)]
    assert entrance.take(*messages) == 500
    with pytest.raises(MemoryError):  # amid the next batch, which is not settled either
        entrance.loop.run_once()
    assert entrance.queue.waiting == 700
    assert [entrance.loop.run_once() for _ in range(3)] == [500, 200, 0]
    assert len(set(entrance.ids())) == 700


def test_error_of_the_store_after_its_work_revives_nothing(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = vars(entrance.loop)["_store"]
    monkeypatch.setattr(store, "carry_out", failing(store.carry_out, 1, after=True))
    with pytest.raises(MemoryError):
        entrance.take(queued("a", x_delay=5000))
    assert entrance.route().of("a").cancel("a") == "cancelled"

    assert entrance.loop.run_once() == 1
    assert entrance.ids() == []


def test_right_that_is_gone_at_the_settle_is_said_and_the_messages_come_again(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = entrance.loop.source

    def settle(_: Sequence[Arrival]) -> None:
        monkeypatch.undo()
        source.give_back()
        raise ConfigError("group g: not authorized")

    monkeypatch.setattr(source, "settle", settle)
    assert entrance.take(queued("a")) == 0
    record = entrance.loop.record()
    assert (record.is_up, record.error) == (False, "group g: not authorized")

    assert entrance.loop.run_once() == 1
    assert entrance.loop.record().error == ""


def test_error_before_a_rejected_letter_is_kept_loses_nothing(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    from duebridge.intake.kept import as_dead_envelopes

    rejected = Outcome(Verdict.REJECTED, Reason.TOO_LARGE, "E", "over 1 MiB")
    entrance.publisher.script(lambda _: rejected)
    monkeypatch.setattr(f"{LOOP}.as_dead_envelopes", failing(as_dead_envelopes, 2))
    bad = [queued(each, x_delay="soon") for each in "ab"]
    assert taken_in(entrance, *bad) == ["a", "b"]
    assert [each.id.partition("~")[0] for each in entrance.dead()] == ["a", "b"]


def test_letters_that_are_held_are_said_once_the_store_is_back(own_redis: RedisNode) -> None:
    entrance = Entrance(own_redis.url)
    failed = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "E", "no topic")
    entrance.publisher.script(lambda _: failed)
    entrance.take()
    own_redis.kill()
    assert entrance.take(queued("a", x_delay="soon"), queued("b")) == 0
    assert "dead letters" not in entrance.loop.record().error

    own_redis.start()
    assert entrance.loop.run_once() == 0
    assert entrance.loop.record().error == "1 dead letters target_failed: E: no topic"


def test_letter_of_a_stream_that_another_process_has_sent_is_not_sent_again(
    entrance: Entrance,
) -> None:
    other = entrance.beside()
    stream = [placed(1), placed(2, x_delay=b"soon"), placed(3)]
    for each in (entrance, other):
        assert each.positions.read(LOG) is None  # as its source does at its connect
    assert (entrance.take(*stream), other.take(*stream)) == (3, 3)
    assert other.take(placed(4, x_delay=b"soon"), placed(5)) == 2

    assert [each.id for each in entrance.letters()] == [stream[1].id, placed(4).id]


def test_message_that_its_client_cannot_read_is_a_letter_and_nothing_else(
    entrance: Entrance,
) -> None:
    entrance.take(placed(1, key=b"k", x_delay=b"5000"))
    damaged = replace(
        placed(2, b"bad", key=b"k", x_cancel=entrance.ids()[0].encode()), unreadable="headers: why"
    )
    assert entrance.take(damaged, placed(3, x_delay=b"5000")) == 2

    assert len(entrance.ids()) == 2
    (letter,) = entrance.letters()
    assert (letter.id, letter.key, letter.body) == (damaged.id, b"k", b"bad")
    said = dict(letter.headers)
    assert (said["x-dlq-reason"], said["x-dlq-error-message"]) == ("invalid", "headers: why")


def test_letter_of_a_long_refusal_has_the_beginning_of_its_message(entrance: Entrance) -> None:
    entrance.take(replace(placed(1), unreadable="why" + "x" * ERROR_CHARACTERS))

    (letter,) = entrance.letters()
    assert dict(letter.headers)["x-dlq-error-message"] == "why" + "x" * (ERROR_CHARACTERS - 3)


def test_unreadable_message_that_comes_again_is_known_by_its_place(entrance: Entrance) -> None:
    damaged = replace(placed(2), unreadable="headers: why")
    entrance.take(damaged, placed(3))
    entrance.take(damaged, placed(3))

    assert len(entrance.ids()) == 1
    assert entrance.reasons() == ["invalid"] * 2
