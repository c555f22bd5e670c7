"""Listens for hints that something is due earlier than a sleeping worker knows.

On a Cluster a hint stays in its shard's slot: one thread a node listens there, so that a node that
is away costs the hints of its own shards only.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import structlog

from duebridge.errors import described
from duebridge.store.keys import Shard
from duebridge.store.server.connection import Connection

POLL_S = 0.5
PAUSE_S = 1.0
_HINTS = ("message", "smessage")
_ENDED = "sunsubscribe"  # a node sends it unasked when a slot leaves it; redis-py takes no notice

log = structlog.get_logger()


class WakeListener:
    """Calls back on each hint, in threads of its own; survives outages, failovers and moved slots.

    A lost hint costs a second.
    """

    def __init__(self, connection: Connection, wake: Mapping[Shard, Callable[[], None]]) -> None:
        self._connection = connection
        self.listen_for(wake)
        self._has_failed = False
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
        listeners: dict[_Place, _HintListener] = {}
        try:
            while not self._stop.is_set():
                self._adapt_safely(listeners)
                self._stop.wait(POLL_S)
        finally:
            for listener in listeners.values():
                listener.stop()
            for listener in listeners.values():
                listener.join()

    def _adapt_safely(self, listeners: dict["_Place", "_HintListener"]) -> None:
        """Adapt, or try again at the next turn: without memory or threads hints are late."""
        try:
            self._adapt(listeners)
            self._has_failed = False
        except Exception as error:
            say = log.debug if self._has_failed else log.error
            say("wake_listener_failed", error=described(error))
            self._has_failed = True

    def _adapt(self, listeners: dict["_Place", "_HintListener"]) -> None:
        wanted = self._places()
        dead = {place for place, listener in listeners.items() if not listener.is_alive}
        for place in (listeners.keys() - wanted) | dead:
            listeners.pop(place).stop()
        for place in wanted - listeners.keys():
            listeners[place] = _HintListener(self._connection, place[1], self._wake_shard)

    def _places(self) -> set["_Place"]:
        """Return each node that has some of our shards, and their channels."""
        found: dict[str, set[bytes]] = {}
        for channel in self._wake:
            found.setdefault(self._connection.node_of(channel.decode()), set()).add(channel)
        return {(node, frozenset(channels)) for node, channels in found.items()}

    def _wake_shard(self, channel: bytes) -> None:
        if call := self._wake.get(channel):
            call()


_Place = tuple[str, frozenset[bytes]]


class _HintListener:
    """Listens to channels of one node until it is stopped."""

    def __init__(
        self, connection: Connection, channels: frozenset[bytes], notify: Callable[[bytes], None]
    ) -> None:
        self._connection, self._channels, self._notify = connection, channels, notify
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wake-ear", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def join(self) -> None:
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except Exception as error:  # the client raises any class on bytes that are no reply
                log.debug("wake_listener_lost", error=described(error))
                with suppress(Exception):  # without memory or threads it is late
                    self._connection.renew_map()  # the slot may have moved, and no call noticed
                self._stopped.wait(PAUSE_S)

    def _listen(self) -> None:
        server = self._connection.server_of(next(iter(self._channels)).decode())
        with server.pubsub() as subscription:
            self._subscribe(subscription)
            while not self._stopped.is_set():
                message = subscription.get_message(timeout=POLL_S)
                if message is not None:
                    self._take(message)

    def _take(self, message: Mapping[str, Any]) -> None:
        if message["type"] in _HINTS:
            self._notify(message["channel"])
        elif message["type"] == _ENDED:
            raise ConnectionError("the node no longer has a channel's slot")

    def _subscribe(self, subscription: Any) -> None:
        if not self._connection.is_cluster:
            subscription.subscribe(*self._channels)
            return
        for channel in self._channels:  # those of one call would have to be of one slot
            subscription.ssubscribe(channel)
