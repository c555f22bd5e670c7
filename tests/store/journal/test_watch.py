"""One worker at a time has a shard's gauge lease: another takes it when it has ended."""

import pytest

from duebridge.store.wire.replies import WatchReply
from tests.support.desk import Desk

KEEP_MS = 15_000


def asked(desk: Desk, worker: str, keep_ms: int = KEEP_MS) -> tuple[int, int]:
    """How long the lease of whoever has it lasts, and whether that is `worker`."""
    reply = desk.store.watch(worker, keep_ms)
    assert reply.poll == desk.store.next()
    return reply.left_ms, reply.is_mine


def test_watch_that_nobody_has_is_the_first_worker_s(desk: Desk) -> None:
    desk.pending("a")
    assert desk.store.watch("one", KEEP_MS) == WatchReply(desk.store.next(), KEEP_MS, 1)
    desk.clock.advance(4000)
    assert asked(desk, "two") == (KEEP_MS - 4000, 0)


def test_watch_that_is_taken_again_lasts_anew(desk: Desk) -> None:
    asked(desk, "one")
    desk.clock.advance(KEEP_MS - 1)
    assert asked(desk, "one") == (KEEP_MS, 1)
    desk.clock.advance(KEEP_MS - 1)
    assert asked(desk, "two") == (1, 0)


def test_watch_that_has_ended_is_another_worker_s(desk: Desk) -> None:
    asked(desk, "one")
    desk.clock.advance(KEEP_MS)
    assert asked(desk, "two") == (KEEP_MS, 1)
    assert asked(desk, "one") == (KEEP_MS, 0)


def test_watch_that_is_given_up_is_anybody_s(desk: Desk) -> None:
    asked(desk, "one")
    assert asked(desk, "one", 0) == (0, 0)
    assert asked(desk, "two") == (KEEP_MS, 1)


def test_watch_of_another_worker_is_not_given_up(desk: Desk) -> None:
    asked(desk, "one")
    assert asked(desk, "two", 0) == (KEEP_MS, 0)
    assert asked(desk, "one") == (KEEP_MS, 1)


@pytest.mark.parametrize("found", ["", "one", "9 ", "-1 one", "1e999 one", f"{10**14}"])
def test_watch_that_is_damaged_is_nobody_s(desk: Desk, found: str) -> None:
    desk.client.hset(desk.shard.key("meta"), "watch", found)
    assert asked(desk, "two") == (KEEP_MS, 1)
