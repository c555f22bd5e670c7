"""What a turn writes leaves in one piece; a client may leave it unread only so long."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import pytest

from duebridge.http.connection.parting import JoinedTransport, PartingTransport

READ_WITHIN_S = 30.0


class HandClock:
    """A clock of the test's own: a loop whose one timer the test lets ring."""

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


class Noting(asyncio.Transport):
    """A transport that notes what it is given to write."""

    def __init__(self, beneath: asyncio.Transport) -> None:
        super().__init__()
        self.beneath = beneath
        self.written: list[bytes] = []

    def write(self, data: object) -> None:
        self.written.append(cast(bytes, data))
        self.beneath.write(cast(bytes, data))

    def is_closing(self) -> bool:
        return self.beneath.is_closing()

    def close(self) -> None:
        self.beneath.close()


async def opened() -> tuple[Noting, JoinedTransport, socket.socket]:
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    noting = Noting(transport)
    return noting, JoinedTransport(noting, loop), theirs


def test_writes_of_a_turn_leave_in_one_piece() -> None:
    async def run() -> list[bytes]:
        noting, joined, theirs = await opened()
        with theirs:
            for part in (b"head", b" and ", b"body"):
                joined.write(part)
            await asyncio.sleep(0)
            joined.write(b"next")
            joined.close()
            await asyncio.sleep(0)
        return noting.written

    assert asyncio.run(run()) == [b"head and body", b"next"]


def test_write_to_a_connection_that_is_gone_is_left_out() -> None:
    async def run() -> list[bytes]:
        noting, joined, theirs = await opened()
        with theirs:
            joined.write(b"nobody reads it")
            noting.abort = noting.beneath.abort  # type: ignore[method-assign]
            joined.abort()
            await asyncio.sleep(0)
        return noting.written

    assert asyncio.run(run()) == []
