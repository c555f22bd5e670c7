"""Listens for hints that something is due earlier than a sleeping worker knows.

On a Cluster a hint stays in its shard's slot: one thread a node listens there, so that a node that
is away costs the hints of its own shards only.
"""

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
    """Calls back on each hint, in threads of its own; survives outages, failovers and moved slots.

    A lost hint costs a second.
    """

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
        ears: dict[frozenset[bytes], _Ear] = {}
        try:
            while not self._stop.is_set():
                self._adapt(ears)
                self._stop.wait(POLL_S)
        finally:
            for ear in ears.values():
                ear.stop()
            for ear in ears.values():
                ear.join()

    def _adapt(self, ears: dict[frozenset[bytes], "_Ear"]) -> None:
        wanted = self._by_node()
        for channels in ears.keys() - wanted:
            ears.pop(channels).stop()
        for channels in wanted - ears.keys():
            ears[channels] = _Ear(self._connection, channels, self._hear)

    def _by_node(self) -> set[frozenset[bytes]]:
        """Return the channels of each node that has some of our shards."""
        found: dict[str, set[bytes]] = {}
        for channel in self._wake:
            found.setdefault(self._connection.node_of(channel.decode()), set()).add(channel)
        return set(map(frozenset, found.values()))

    def _hear(self, channel: bytes) -> None:
        if call := self._wake.get(channel):
            call()


class _Ear:
    """Listens to channels of one node until it is stopped."""

    def __init__(
        self, connection: Connection, channels: frozenset[bytes], hear: Callable[[bytes], None]
    ) -> None:
        self._connection, self._channels, self._hear = connection, channels, hear
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wake-ear", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except Exception as error:  # the client raises any class on bytes that are no reply
                log.debug("wake_listener_lost", error=f"{type(error).__name__}: {error}")
                self._stopped.wait(PAUSE_S)

    def _listen(self) -> None:
        server = self._connection.server_of(next(iter(self._channels)).decode())
        with server.pubsub(ignore_subscribe_messages=True) as subscription:
            self._subscribe(subscription)
            while not self._stopped.is_set():
                message = subscription.get_message(timeout=POLL_S)
                if message is not None:
                    self._hear(message["channel"])

    def _subscribe(self, subscription: Any) -> None:
        if not self._connection.is_cluster:
            subscription.subscribe(*self._channels)
            return
        for channel in self._channels:  # those of one call would have to be of one slot
            subscription.ssubscribe(channel)
