"""Threads of a process that calls a store of many nodes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from duebridge.store.caller import NodeThreads

WITHIN_S = 30.0


@contextmanager
def filled(threads: NodeThreads, calls: int) -> Iterator[threading.Event]:
    """Calls of the node `away` that end once the event is set."""
    may_end = threading.Event()
    try:
        for _ in range(calls):
            threads.submit(lambda: may_end.wait(WITHIN_S), "away")
        yield may_end
    finally:
        may_end.set()
        threads.shutdown()


def test_submit_beside_a_node_whose_threads_all_wait_runs_at_once() -> None:
    threads = NodeThreads(2, "t")
    with filled(threads, 20):
        names = [threads.submit(lambda: threading.current_thread().name, "live") for _ in range(9)]
        assert all(each.result(WITHIN_S).startswith("t") for each in names)
        assert threads.submit(lambda: "no node").result(WITHIN_S) == "no node"


def test_submit_to_a_node_without_a_free_thread_waits_in_order() -> None:
    threads, ran = NodeThreads(1, "t"), list[int]()
    with filled(threads, 1) as may_end:
        calls = [threads.submit(lambda n=number: ran.append(n), "away") for number in range(5)]
        assert calls[2].cancel()
        assert not ran
        may_end.set()
        calls[-1].result(WITHIN_S)
    assert ran == [0, 1, 3, 4]


def test_shutdown_runs_the_calls_that_wait_and_no_later_one() -> None:
    threads = NodeThreads(1, "t")
    with filled(threads, 1) as may_end:
        waiting = threads.submit(lambda: "ran", "away")
        may_end.set()
        threads.shutdown()
        assert waiting.result(0) == "ran"
        with pytest.raises(RuntimeError, match="after shutdown"):
            threads.submit(lambda: "late")


def test_submit_of_a_call_that_raises_raises_it_and_keeps_its_thread() -> None:
    threads = NodeThreads(1, "t")

    def broken() -> None:
        raise ValueError("canary")

    with filled(threads, 0):
        failed = threads.submit(broken, "a")
        assert threads.submit(lambda: "next", "a").result(WITHIN_S) == "next"
        assert isinstance(failed.exception(0), ValueError)
