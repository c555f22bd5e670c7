"""What a run leaves in the store: once it is over, no key and no memory but the journal's."""

from typing import Any, NamedTuple

from duebridge.bench.meter import Calls, Meter
from duebridge.store.connection import Connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard

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


def stored_bytes(connection: Connection) -> int:
    """Return the memory of what is stored, without the slow log, which the server counts to it.

    A server that is nearly empty may deduct more for its buffers than it has: less than nothing.
    """
    client: Any = connection.client
    client.slowlog_reset()
    return signed(Meter(connection, Calls()).dataset_bytes())


def signed(unsigned: int) -> int:
    """Return a number of 64 bits that went below zero as what it is."""
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


def leftovers(connection: Connection, shard: Shard, before_bytes: int) -> Leftovers:
    """Remove the journal, and return what there was and what else is left in the namespace."""
    client: Any = connection.client
    _forget_answers(connection, shard)
    found = client.scan_iter(match=f"{{{shard.namespace}:*", count=1000)
    keys = [key.decode() for key in found]
    with_journal = stored_bytes(connection)
    client.unlink(f"{shard.tag}:journal")
    without = stored_bytes(connection)
    return Leftovers(keys, with_journal - without, without - before_bytes)


def _forget_answers(connection: Connection, shard: Shard) -> None:
    """Let go of what is kept for repeated calls, as the store does by itself after a minute."""
    store = DelayStore(connection, shard, now_ms=lambda: LATER_MS)
    while store.forget()[1]:
        pass
