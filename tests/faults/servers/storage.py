"""What a run has in the store: envelopes by state, its journal, and what it leaves behind."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import redis

from duebridge.admin.listing import Listing
from duebridge.bench.meter import CallCounter, Meter
from duebridge.config.load import load_config
from duebridge.store.delay_store import DelayStore
from duebridge.store.journal import Journal, JournalEntry
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.wire.record import read_flight
from tests.support.model.histories import Historian, Phase, Subject
from tests.support.servers import redis_server, wait_until

STATES = ("pending", "ready", "suspect", "unack", "retry", "dead")
LASTING_KEYS = {"journal", "meta"}  # of a shard that is empty
# What a server takes for itself meanwhile, half of it for statistics of commands new to it.
SLACK_BYTES = 1024 * 1024
LATER_MS = 4_102_444_800_000  # the year 2100


class Leftovers(NamedTuple):
    """Keys, the journal among them, and how many bytes more than before the rest takes."""

    keys: list[str]
    journal_bytes: int
    more_bytes: int

    def violations(self) -> dict[str, list[str]]:
        """Return the keys and the memory that no live envelope needs."""
        keys = [key for key in self.keys if key.rsplit(":", 1)[1] not in LASTING_KEYS]
        more = [f"{self.more_bytes} bytes"] if self.more_bytes > SLACK_BYTES else []
        found = {"left_over_keys": keys, "left_over_memory": more}
        return {kind: what for kind, what in found.items() if what}


class Storage:
    """The routes of a configuration in a store, straight; `failures` are those noted, by id."""

    def __init__(self, url: str, config: Path) -> None:
        loaded = load_config(config)
        self._namespace = loaded.store.namespace
        self.connection = open_connection(url)
        self.client: Any = self.connection.client
        self._routes = [
            RouteStore.open(self.connection, self._namespace, each)
            for each in loaded.routes.values()
        ]
        self.shards = [shard for route in self._routes for shard in route.shards]
        self.failures: dict[str, int] = {}
        self.before_bytes = stored_bytes(self.connection)

    def poll(self) -> Counter[str]:
        """Return how many envelopes are in each state, in all shards."""
        found: Counter[str] = Counter()
        for poll in (shard.next() for shard in self.shards):
            found.update({name: getattr(poll, name) for name in STATES})
        return found

    def unacked_on_disk(self, files: Path, home: Path) -> int:
        """Return how many envelopes are in flight in a store that stands still, by its files."""
        copy = shutil.copytree(files, home / "store-on-disk")
        with redis_server(copy, "--appendonly", "yes") as port, redis.Redis(port=port) as client:
            wait_until(lambda: not client.info("persistence")["loading"], "the copy of a store")
            return sum(client.zcard(shard.shard.key("unack")) for shard in self.shards)

    def note_failures(self) -> None:
        """Note what has a counted failure now, if the store answers."""
        with suppress(redis.RedisError):
            for shard in self.shards:
                for name, packed in self.client.hgetall(shard.shard.key("flight")).items():
                    if failures := read_flight(packed).failures:
                        self.failures[name.decode()] = failures

    def journal(self) -> Iterator[JournalEntry]:
        """Yield all that happened, shard by shard."""
        for shard in self.shards:
            journal = Journal(self.connection, shard.shard)
            yield from journal.read(0, journal.last())

    def dump(self, home: Path) -> None:
        """Write down every envelope that the store still has, and its state."""
        history = Historian(home, "store")
        for route in self._routes:
            for found in Listing(route.shards[0].shard.route, route.shards).walk():
                history.note(Subject.STORE, Phase.OK, found.entry.id, answer=found.entry.state)
        history.close()

    def leftovers(self) -> Leftovers:
        """Remove the journals, and return what there was and what else is left."""
        for shard in self.shards:
            _forget_answers(self.connection, shard)
        keys = [key.decode() for key in self._keys(":")]
        with_journal = stored_bytes(self.connection)
        self.client.unlink(*(f"{shard.shard.tag}:journal" for shard in self.shards))
        without = stored_bytes(self.connection)
        return Leftovers(keys, with_journal - without, without - self.before_bytes)

    def _keys(self, after_namespace: str = "") -> Iterator[bytes]:
        yield from self.client.scan_iter(f"{{{self._namespace}{after_namespace}*", count=1000)

    def close(self) -> None:
        """Remove everything, and close the connection."""
        for key in self._keys():
            self.client.unlink(key)
        self.connection.close()


def _forget_answers(connection: Connection, shard: DelayStore) -> None:
    """Let go of what is kept for repeated calls, as the store does by itself after a minute."""
    store = DelayStore(connection, shard.shard, now_ms=lambda: LATER_MS)
    while store.forget()[1]:
        pass


def stored_bytes(connection: Connection) -> int:
    """Return the memory of what is stored, without the slow log, which the server counts to it.

    A server that is nearly empty may deduct more for its buffers than it has: less than nothing.
    """
    client: Any = connection.client
    client.slowlog_reset()
    found = dataset_bytes(connection)
    return found - 2**64 if found >= 2**63 else found  # 64 bits that went below zero


def dataset_bytes(connection: Connection) -> int:
    return Meter(connection, CallCounter()).dataset_bytes()
