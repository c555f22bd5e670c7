"""Hints that something is due earlier than a sleeping worker knows; losing one costs a second."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from duebridge.store.connection import Connection
from duebridge.store.keys import Shard

POLL_S = 0.5
PAUSE_S = 1.0

log = structlog.get_logger()


class WakeListener:
    """Calls back for each hint, in a thread of its own; outlives every outage of the store."""

    def __init__(self, connection: Connection, wake: Mapping[Shard, Callable[[], None]]) -> None:
        self._connection = connection
        self.listen_for(wake)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wake-listener", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def listen_for(self, wake: Mapping[Shard, Callable[[], None]]) -> None:
        """Call back for the hints of these shards instead, from half a second on at the latest."""
        self._wake = {shard.wake.encode(): call for shard, call in wake.items()}

    def close(self) -> None:
        """Stop listening."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._listen(frozenset(self._wake))
            except Exception as error:  # of what is no reply, the client raises anything
                log.debug("wake_listener_lost", error=f"{type(error).__name__}: {error}")
                self._stop.wait(PAUSE_S)

    def _listen(self, channels: frozenset[bytes]) -> None:
        if not channels:
            self._stop.wait(POLL_S)
            return
        client: Any = self._connection.client
        with client.pubsub(ignore_subscribe_messages=True) as subscription:
            subscription.subscribe(*channels)
            while not self._stop.is_set() and channels == self._wake.keys():
                message = subscription.get_message(timeout=POLL_S)
                if message is not None and message["channel"] in (wake := self._wake):
                    wake[message["channel"]]()
