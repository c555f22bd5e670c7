"""How long a client may leave unread what waits for it, by a clock of the test's own."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from duebridge.http.connection.parting import PartingTransport

READ_WITHIN_S = 30.0


class HandClock:
    """A loop whose one timer the test lets ring."""

    def __init__(self) -> None:
        self.ring: Callable[[], None] | None = None

    def call_later(self, seconds: float, call: Callable[[], None]) -> "HandClock":
        assert seconds == READ_WITHIN_S
        self.ring = call
        return self

    def cancel(self) -> None:
        self.ring = None

    def pass_by(self) -> None:
        assert self.ring is not None
        self.ring()


class Beneath:
    """A transport with so many bytes unread."""

    def __init__(self) -> None:
        self.unread, self.is_gone = 1000, False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self.is_gone

    def close(self) -> None:
        """Wait for what is unread."""

    def abort(self) -> None:
        self.is_gone = True


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def beneath() -> Beneath:
    return Beneath()


@pytest.fixture
def transport(clock: HandClock, beneath: Beneath) -> PartingTransport:
    loop: Any = clock
    below = cast("asyncio.Transport", beneath)
    return PartingTransport(below, loop, lambda: False, READ_WITHIN_S)


def let_it_read(transport: PartingTransport) -> None:
    transport.await_reader(lambda: False)


@pytest.mark.parametrize("wait", [let_it_read, PartingTransport.close])
def test_client_that_reads_slowly_keeps_its_connection(
    wait: Callable[[PartingTransport], None],
    transport: PartingTransport,
    clock: HandClock,
    beneath: Beneath,
) -> None:
    wait(transport)
    for unread in (900, 899, 1):
        beneath.unread = unread
        clock.pass_by()
        assert not beneath.is_gone
    clock.pass_by()
    assert beneath.is_gone


def test_client_that_reads_all_keeps_its_connection(
    transport: PartingTransport, clock: HandClock
) -> None:
    let_it_read(transport)
    transport.stop_waiting()
    assert clock.ring is None


def test_client_that_may_leave_an_answer_unread_keeps_its_connection(
    transport: PartingTransport, clock: HandClock, beneath: Beneath
) -> None:
    excuses = [True, True, False]
    transport.await_reader(lambda: excuses.pop(0))
    for is_gone in (False, False, True):
        clock.pass_by()
        assert beneath.is_gone is is_gone
