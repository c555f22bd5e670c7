"""Clients of servers and Clusters: safe to leave open at exit, to interrupt, and in a failover."""

import sys
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

import redis

_DEMOTED = (redis.exceptions.ReadOnlyError, redis.exceptions.MasterDownError)
_DEMOTED_WORDS = ("READONLY", "MASTERDOWN")  # inside a script only the text may tell


def role_of(connection: Any) -> str:
    """Ask the server of a connection what it is: master, slave or sentinel."""
    connection.send_command("ROLE")
    role = connection.read_response()[0]
    return role.decode() if isinstance(role, bytes) else str(role)


class _Borrowed(set[Any]):
    """The connections in use; each knows the thread that borrowed it."""

    def add(self, connection: Any) -> None:
        connection.borrower = get_ident()
        super().add(connection)


class SafePool(redis.ConnectionPool):
    """Gives out no connection on which a reply is outstanding, and loses none.

    An exception of a signal handler (Ctrl-C, a task's time limit) may end a call anywhere: between
    request and reply, or before the connection is given back.
    """

    @property
    def _in_use_connections(self) -> _Borrowed:
        return self._borrowed

    @_in_use_connections.setter
    def _in_use_connections(self, connections: Iterable[Any]) -> None:
        self._borrowed = _Borrowed(connections)  # in place before `reset` lets other threads go on

    def release(self, connection: Any) -> None:
        """Take a connection back; close it first if its call was interrupted."""
        if _is_interruption(sys.exception()):
            connection.disconnect()
        super().release(connection)

    def take_back(self) -> None:
        """Close and take back what this thread has borrowed: its call was interrupted."""
        thread = get_ident()
        with self._lock:
            for each in [each for each in self._in_use_connections if each.borrower == thread]:
                each.disconnect()
                super().release(each)
            # One that was on its way from one list to the other is in neither.
            held = len(self._available_connections) + len(self._in_use_connections)
            self._created_connections = held


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

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command and return its answer; raises redis-py's errors."""
        try:
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except BaseException as error:
            _mend(self.connection_pool, error)
            raise

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> "MendingPipeline":
        """Return a pipeline that mends the pool as single commands do."""
        callbacks = self.response_callbacks
        return MendingPipeline(self.connection_pool, callbacks, transaction, shard_hint)


class MendingPipeline(redis.client.Pipeline):
    """Commands in one round trip."""

    def execute(self, raise_on_error: bool = True) -> Any:
        """Send the commands and return their answers; raises redis-py's errors."""
        try:
            answers = super().execute(raise_on_error)
        except BaseException as error:
            self.connection = None
            _mend(self.connection_pool, error)
            raise
        for each in answers:
            if isinstance(each, Exception):
                _mend(self.connection_pool, each)
        return answers


def _mend(pool: Any, error: BaseException) -> None:
    """Close what a call that ended so has left unusable, so that the next one connects anew."""
    if not isinstance(pool, SafePool):
        return
    if _is_interruption(error):
        pool.take_back()
    elif _tells_of_demotion(error):
        pool.disconnect(inuse_connections=False)


def _is_interruption(error: BaseException | None) -> bool:
    return error is not None and not isinstance(error, Exception)


def _tells_of_demotion(error: BaseException) -> bool:
    """Whether a server refused a call since it is a replica, or one without its master."""
    is_answer = isinstance(error, redis.exceptions.ResponseError)
    return isinstance(error, _DEMOTED) or (
        is_answer and any(word in str(error) for word in _DEMOTED_WORDS)
    )
