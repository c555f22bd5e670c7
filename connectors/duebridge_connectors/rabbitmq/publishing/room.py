"""Opens the channels of a connection, in turn where the broker allows no more of them.

All code here runs on the connection's thread.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from pika.exceptions import NoFreeChannels


class ChannelRoom:
    """Gives whoever finds no channel free the next one that is closed.

    `make_room` closes a channel that nobody uses, if there is one.
    """

    def __init__(self, connection: Any, make_room: Callable[[], None]) -> None:
        self._connection = connection
        self._make_room = make_room
        self._waiting: deque[Callable[[], bool]] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for a channel."""
        return bool(self._waiting)

    def take(self, on_open: Callable[[Any], None], again: Callable[[], bool]) -> Any:
        """Return a channel that opens; None if none is free.

        Then `again` is called in turn, and returns whether it still had a use for a channel.
        """
        try:
            channel = self._connection.channel(on_open_callback=on_open)
        except NoFreeChannels:
            self._waiting.append(again)
            self._make_room()
            return None
        channel.add_on_close_callback(self._on_close)
        return channel

    def _on_close(self, *_: object) -> None:
        # pika counts the channel until its callbacks have returned.
        self._connection.ioloop.add_callback_threadsafe(self._serve)

    def _serve(self) -> None:
        while self._waiting and self._connection.is_open:
            if self._waiting.popleft()():
                return
