"""What a server writes in one turn of its loop leaves in one piece."""

import asyncio
import socket
from typing import cast

from duebridge.http.connection.parting import JoinedTransport


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
