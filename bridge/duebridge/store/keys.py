"""The names of all keys in the store.

The keys of a shard share one hash tag, so that a script may touch them together in a Cluster.
"""

from typing import NamedTuple

# The order in which every script gets its keys: lua/shared/prelude.lua.
SHARD_KEYS = (
    "pending",
    "ready",
    "suspect",
    "unack",
    "retry",
    "dead",
    "envelopes",
    "flight",
    "journal",
    "meta",
    "memory",
    "forget",
    "wake",
    "cold_a",
    "cold_b",
)


class Shard(NamedTuple):
    """One shard of a route, the keys that a script works on."""

    namespace: str
    route: str
    number: int

    @property
    def tag(self) -> str:
        """The hash tag, with its braces."""
        return f"{{{self.namespace}:{self.route}:{self.number}}}"

    def keys(self) -> tuple[str, ...]:
        """All keys of the shard, in the order of `SHARD_KEYS`."""
        return tuple(self.key(name) for name in SHARD_KEYS)

    def key(self, name: str) -> str:
        """The key of that name among `SHARD_KEYS`."""
        return f"{self.tag}:{name}"

    @property
    def wake(self) -> str:
        """The channel that carries hints of earlier work."""
        return self.key("wake")


def routes_key(namespace: str) -> str:
    """Return the key of the hash that has each route's layout and number of shards."""
    return f"{{{namespace}}}:routes"


def epochs_key(namespace: str) -> str:
    """Return the key of the hash that has the epoch of each route's life."""
    return f"{{{namespace}}}:epochs"


def purged_key(namespace: str) -> str:
    """Return the key of the stream that has the purges of routes."""
    return f"{{{namespace}}}:purged"


def workers_key(namespace: str) -> str:
    """Return the key of the index of workers: id → when it last wrote its record, ms."""
    return f"{{{namespace}}}:workers"


def worker_key(namespace: str, worker_id: str) -> str:
    """Return the key of a worker's record."""
    return f"{{{namespace}}}:worker:{worker_id}"


def intake_key(namespace: str, intake: str) -> str:
    """Return the key of an intake's positions: log → offset of the last settled message."""
    return f"{{{namespace}}}:intake:{intake}"
