"""Sends an answer while its request is still being read, and waits for a client that reads late."""

import asyncio
from types import TracebackType
from typing import Self

from starlette.types import Send

MOST_UNREAD = 8 * 1024 * 1024  # of answers to a client that sends everything before it reads


class Unread(Exception):
    """The client does not read its answer."""


class Outlet:
    """An answer in parts: `put` returns at once while the client is at most so far behind."""

    def __init__(self, send: Send, within_s: float, media_type: str) -> None:
        self._send = send
        self._within_s = within_s
        self._media_type = media_type
        self._parts: asyncio.Queue[bytes] = asyncio.Queue()
        self._unread = 0
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_abandoned = False

    async def put(self, part: bytes) -> None:
        """Send a part; raises `Unread` where the client has not read for too long."""
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        self._unread += len(part)
        self._parts.put_nowait(part)
        await self._less_than(MOST_UNREAD)

    def abandon(self) -> None:
        """Send nothing more."""
        self._is_abandoned = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        if kind is not None or self._is_abandoned:
            if self._task is not None:
                self._task.cancel()
            return
        await self._end()

    async def _end(self) -> None:
        """Send the rest; a client that does not read it loses its connection."""
        if self._task is None:  # there was no part: the answer is empty
            await self._start()
        else:
            try:
                await self._less_than(1)
            except Unread:
                return
            finally:
                self._task.cancel()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _less_than(self, most: int) -> None:
        while self._unread >= most:
            self._moved.clear()
            try:
                await asyncio.wait_for(self._moved.wait(), self._within_s)
            except TimeoutError:
                raise Unread from None

    async def _start(self) -> None:
        await self._send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", self._media_type.encode())],
            }
        )

    async def _work(self) -> None:
        await self._start()
        while True:
            part = await self._parts.get()
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
            self._unread -= len(part)
            self._moved.set()
