"""Listens for hints that something is due earlier than a sleeping worker knows."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from duebridge.store.keys import Shard
from duebridge.store.server.connection import Connection

POLL_S = 0.5
PAUSE_S = 1.0

log = structlog.get_logger()


class WakeListener:
    """Calls back on each hint, in its own thread; survives outages. A lost hint costs a second."""

    def __init__(self, connection: Connection, wake: Mapping[Shard, Callable[[], None]]) -> None:
        self._connection = connection
        self.listen_for(wake)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wake-listener", daemon=True)

    def start(self) -> None:
        """Start listening."""
        self._thread.start()

    def listen_for(self, wake: Mapping[Shard, Callable[[], None]]) -> None:
        """Replace the shards to listen for, within half a second."""
        self._wake = {shard.wake.encode(): call for shard, call in wake.items()}

    def close(self) -> None:
        """Stop listening."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._listen(frozenset(self._wake))
            except Exception as error:  # the client raises any class on bytes that are no reply
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
