"""Clients of servers and Clusters: safe to leave open at exit, to interrupt, and in a failover."""

import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from itertools import count
from threading import get_ident
from typing import Any

import redis

from duebridge.store.server.forks import renew_after_fork, renew_pool_locks

_DEMOTED = (redis.exceptions.ReadOnlyError, redis.exceptions.MasterDownError)
_DEMOTED_WORDS = ("READONLY", "MASTERDOWN")  # inside a script only the text may tell
_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time
_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", None)  # ms without an acknowledgement
_turns = count()  # orders calls and loans; `next` of it is atomic


def role_of(connection: Any) -> str:
    """Ask the server of a connection what it is: master, slave or sentinel."""
    connection.send_command("ROLE")
    role = connection.read_response()[0]
    return role.decode() if isinstance(role, bytes) else str(role)


class _CheckedConnection:
    """Makes a kind of connection know whether it may be kept.

    Settled is what is greeted and owes no reply. Only a call that has read its replies says so: a
    doubt costs one connection.
    """

    pid: int
    _sock: socket.socket | None
    is_settled = False

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send a request, whose replies are outstanding from now on."""
        self.is_settled = False
        super().send_packed_command(command, check_health)  # type: ignore[misc]

    def disconnect(self, *args: Any, **options: Any) -> None:
        """Close it; it is greeted anew before it is of use.

        Where a reply is outstanding it is reset: after a partition the kernel would send the
        request again, and the server would run it behind newer calls that it has answered.
        """
        if not self.is_settled and self.pid == os.getpid():  # a fork shares its parent's sockets
            _reset(self._sock)
        self.is_settled = False
        super().disconnect(*args, **options)  # type: ignore[misc]


def _reset(connected: socket.socket | None) -> None:
    """Close a TCP connection; the kernel drops what was not sent or not acknowledged yet."""
    if connected is None or connected.family == socket.AF_UNIX:
        return
    with suppress(OSError):  # another thread has closed it, or the server has
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        if _USER_TIMEOUT is not None:  # where a forked child holds it too, `close` drops nothing
            connected.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, 1)
        socket.socket.shutdown(connected, socket.SHUT_RD)  # wakes a reader; TLS would end it first
        connected.close()


@cache
def _checked_kind(kind: Any) -> Any:
    return type(f"_Checked{kind.__name__}", (_CheckedConnection, kind), {})


class _BorrowedConnections(set[Any]):
    """The connections in use; each knows which thread borrowed it, and when."""

    def add(self, connection: Any) -> None:
        connection.borrower, connection.lent_at = get_ident(), next(_turns)
        super().add(connection)


class SafePool(redis.ConnectionPool):
    """Gives out no connection on which a reply is outstanding, and loses none.

    An exception of a signal handler (Ctrl-C, a task's time limit), of whatever class, may end a
    call anywhere: amid the greeting, between request and reply, before the connection is given
    back.
    """

    def __init__(self, connection_class: Any = redis.Connection, **options: Any) -> None:
        """Take redis-py's options of a pool and of its connections."""
        super().__init__(connection_class=_checked_kind(connection_class), **options)
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Make new locks for a forked child; the first call there leaves the parent's sockets."""
        renew_pool_locks(self)

    @classmethod
    def like(cls, pool: redis.ConnectionPool, options: Mapping[str, Any]) -> "SafePool":
        """Return a pool to the same server as one of redis-py's; `options` are its client's."""
        given = {"max_connections": pool.max_connections, **pool.connection_kwargs}
        given["maint_notifications_config"] = options["maint_notifications_config"]
        return cls(pool.connection_class, **given)

    @property
    def _in_use_connections(self) -> _BorrowedConnections:
        return self._borrowed

    @_in_use_connections.setter
    def _in_use_connections(self, connections: Iterable[Any]) -> None:
        # In place before `reset` lets other threads go on.
        self._borrowed = _BorrowedConnections(connections)

    def release(self, connection: Any) -> None:
        """Take a connection back; close it first unless it is settled."""
        if not connection.is_settled:
            connection.disconnect()
        super().release(connection)

    def take_back(self, since: int) -> None:
        """Take back what this thread has borrowed since a turn: its call has ended."""
        thread = get_ident()
        with self._lock:
            for each in list(self._borrowed):
                if each.borrower == thread and each.lent_at > since:
                    self.release(each)
            # One that was on its way from one list to the other is in neither.
            self._created_connections = len(self._available_connections) + len(self._borrowed)


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
    """A client of one server, of a Sentinel set's master, or of a Cluster's node."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command and return its answer; raises redis-py's errors."""
        began = next(_turns)
        try:
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except BaseException as error:
            _mend(self.connection_pool, began, error)
            raise

    def parse_response(self, connection: Any, command_name: Any, **options: Any) -> Any:
        """Read an answer, the only one that is outstanding; raises redis-py's errors."""
        return _settling(super().parse_response, connection, command_name, **options)

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> "MendingPipeline":
        """Return a pipeline that mends the pool as single commands do."""
        callbacks = self.response_callbacks
        return MendingPipeline(self.connection_pool, callbacks, transaction, shard_hint)


class MendingPipeline(redis.client.Pipeline):
    """Commands in one round trip."""

    def execute(self, raise_on_error: bool = True) -> Any:
        """Send the commands and return their answers; raises redis-py's errors."""
        began = next(_turns)
        try:
            answers = super().execute(raise_on_error)
        except BaseException as error:
            self.connection = None
            _mend(self.connection_pool, began, error)
            raise
        for each in answers:
            if isinstance(each, Exception):
                _leave_replica(self.connection_pool, each)
        return answers

    def _execute_pipeline(self, connection: Any, *given: Any) -> Any:
        return _settling(super()._execute_pipeline, connection, *given)

    def _execute_transaction(self, connection: Any, *given: Any) -> Any:
        return _settling(super()._execute_transaction, connection, *given)


def _settling(call: Callable[..., Any], connection: Any, *given: Any, **options: Any) -> Any:
    """Run what reads all replies that are outstanding on a connection, and say so."""
    try:
        answer = call(connection, *given, **options)
    except redis.exceptions.ResponseError:  # one of the replies, raised when all were read
        connection.is_settled = True
        raise
    connection.is_settled = True
    return answer


def _mend(pool: Any, began: int, error: BaseException) -> None:
    """Take back what a call that ended with an error had borrowed since it began."""
    if isinstance(pool, SafePool):
        pool.take_back(began)
    _leave_replica(pool, error)


def _leave_replica(pool: Any, error: BaseException) -> None:
    """Close idle connections if a server refused as a replica, so that later calls connect anew."""
    if isinstance(pool, SafePool) and _tells_of_demotion(error):
        pool.disconnect(inuse_connections=False)


def _tells_of_demotion(error: BaseException) -> bool:
    """Whether a server refused a call since it is a replica, or one without its master."""
    is_answer = isinstance(error, redis.exceptions.ResponseError)
    return isinstance(error, _DEMOTED) or (
        is_answer and any(word in str(error) for word in _DEMOTED_WORDS)
    )
