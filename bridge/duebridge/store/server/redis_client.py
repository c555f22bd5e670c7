"""Clients of servers and Clusters that may be left open when the interpreter ends."""

import sys
from collections.abc import Callable

import redis


class ExitSafeClient:
    """Keeps a client's deletion from blocking the end of the process.

    redis-py closes a client's pools as it is deleted, under their locks. While the interpreter
    ends, a daemon thread that was stopped in the middle may hold such a lock for ever.
    """

    # Bound here, since names of modules are gone by then.
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Close the pools, unless the interpreter ends; the system closes their sockets then."""
        if not is_finalizing():
            super().__del__()  # type: ignore[misc]


class RedisClient(ExitSafeClient, redis.Redis):
    """A client of one server, or of a Sentinel set's master."""
