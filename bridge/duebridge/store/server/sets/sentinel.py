"""Finds the master of a Sentinel set, and leaves a former one at once.

After `SENTINEL FAILOVER` the old master takes writes for ten seconds more, all of them lost: to ask
only on connecting is too late. A thread asks the Sentinels once a second, and every connection asks
the server itself what it is.
"""

import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import redis
import structlog
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError

from duebridge.errors import described
from duebridge.runtime import left_s
from duebridge.store.server.errors import SentinelRefused
from duebridge.store.server.forks import renew_after_fork, renew_pool_locks
from duebridge.store.server.redis_client import RedisClient, SafePool, role_of

ASK_EVERY_S = 1.0
LEAST_PAUSE_S = 0.1  # between two questions, however many calls fail
SENTINEL_TIMEOUT_S = 0.5
OLDER_FOR_S = 5.0  # a Sentinel tells the others of a failover every 2 s: then none is behind

Address = tuple[str, int]

log = structlog.get_logger()


class _SentinelAnswer(NamedTuple):
    """One Sentinel's answer: the master and the epoch of its configuration, or its error."""

    epoch: int = -1
    address: Address | None = None
    error: Exception | None = None


class MasterFinder:
    """Knows the master's address. The Sentinel with the latest configuration is right."""

    def __init__(
        self, sentinels: Sequence[Address], service: str, options: Mapping[str, Any]
    ) -> None:
        """Ask these Sentinels; `options` are redis-py's for the connections to them."""
        self._service = service
        shared = {
            **options,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": SENTINEL_TIMEOUT_S,
            "socket_connect_timeout": SENTINEL_TIMEOUT_S,
        }
        self._sentinels = [RedisClient(host=host, port=port, **shared) for host, port in sentinels]
        self._known = _SentinelAnswer()
        self._older_since: float | None = None
        self._asking = threading.Lock()
        self._doubted = threading.Event()
        self._closed = False
        self._watcher: threading.Thread | None = None
        self._has_failed = False
        self._pool: weakref.ref[MasterPool] | None = None
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Make new locks for a forked child; its first call starts a thread of its own."""
        self._asking, self._doubted = threading.Lock(), threading.Event()
        for each in self._sentinels:
            renew_pool_locks(each.connection_pool)

    def serve(self, pool: "MasterPool") -> None:
        """Disconnect the connections of this pool when another server becomes the master."""
        self._pool = weakref.ref(pool)

    def address(self) -> Address:
        """Return the master's address; asks the Sentinels only where none is known yet.

        Raises `MasterNotFoundError` and `SentinelRefused`.
        """
        self._watch()
        if self._known.address is None:
            with self._asking:
                self._find_first()
        return self._known.address or ("", 0)

    def _find_first(self) -> None:
        if self._known.address is None:  # else another thread has found it meanwhile
            self._learn(_best(self._answers(len(self._sentinels) // 2 + 1), self._service))

    def doubt(self) -> None:
        """Ask the Sentinels now: a server did not answer, or is no master."""
        self._doubted.set()

    def close(self) -> None:
        """End the thread and the connections to the Sentinels."""
        self._closed = True
        self._doubted.set()
        for each in self._sentinels:
            each.close()

    def _watch(self) -> None:
        """Start the thread that asks, unless it runs: a fork has none, and a start may fail.

        Then the call goes on with the master that is known, and the next one tries again.
        """
        if self._closed or (self._watcher and self._watcher.is_alive()):
            return
        self._asking = threading.Lock()
        watched = weakref.ref(self), self._doubted
        try:
            self._watcher = threading.Thread(
                target=_watch, args=watched, name="sentinels", daemon=True
            )
            self._watcher.start()
        except Exception as error:
            self._note_failure(error)

    @property
    def is_watched_here(self) -> bool:
        """Whether the calling thread is the one that asks; of two that started at once one ends."""
        return not self._closed and self._watcher is threading.current_thread()

    def ask_again_safely(self) -> None:
        """Ask every Sentinel, or once more a second later: without memory or threads it is late."""
        try:
            self.ask_again()
            self._has_failed = False
        except Exception as error:
            self._note_failure(error)

    def _note_failure(self, error: Exception) -> None:
        say = log.debug if self._has_failed else log.error
        say("sentinels_not_asked", error=described(error))
        self._has_failed = True

    def ask_again(self) -> None:
        """Ask every Sentinel, and follow what is newer; what they refuse is left to the calls."""
        every = len(self._sentinels)
        answers = [each for each in self._answers(every) if each.address]
        if answers and not self._closed:
            newest = max(answers, key=lambda answer: answer.epoch)
            # Epochs only rise, unless the Sentinels were set up again.
            is_certain = len(answers) == every or self._has_begun_anew(newest, answers)
            self._learn(newest, is_certain=is_certain)

    def _has_begun_anew(self, newest: _SentinelAnswer, answers: Sequence[_SentinelAnswer]) -> bool:
        """Whether most Sentinels have agreed for a while, and none that answers knows our epoch.

        At first they may just not have heard yet of a failover whose leader does not answer us.
        """
        agreed = sum(each.address == newest.address for each in answers)
        if newest.epoch >= self._known.epoch or 2 * agreed <= len(self._sentinels):
            self._older_since = None
            return False
        self._older_since = self._older_since or time.monotonic()
        return time.monotonic() - self._older_since >= OLDER_FOR_S

    def _learn(self, answer: _SentinelAnswer, *, is_certain: bool = False) -> None:
        before, pool = self._known, self._pool and self._pool()
        if not (is_certain or answer.epoch >= before.epoch):
            return
        self._known = answer  # also where the same server is master again, of a later epoch
        if before.address not in (None, answer.address) and pool:
            pool.disconnect()  # in use, too: what the former master still says is worth nothing

    def _answers(self, enough: int) -> list[_SentinelAnswer]:
        """Return the answers of the Sentinels, asked all at once, until `enough` named a master."""
        arrived: SimpleQueue[_SentinelAnswer] = SimpleQueue()
        for each in self._sentinels:
            self._ask_aside(each, arrived)
        answers: list[_SentinelAnswer] = []
        until = time.monotonic() + 2 * SENTINEL_TIMEOUT_S
        try:
            while len(answers) < len(self._sentinels) and _count_masters(answers) < enough:
                answers.append(arrived.get(timeout=left_s(until)))
        except Empty:
            pass  # one that is frozen says nothing
        return answers

    def _ask_aside(self, sentinel: RedisClient, arrived: "SimpleQueue[_SentinelAnswer]") -> None:
        """Ask one Sentinel in a thread; where that cannot start, the Sentinel counts as away."""
        try:
            threading.Thread(
                target=lambda: arrived.put(_answer_of(sentinel, self._service)), daemon=True
            ).start()
        except Exception as error:
            arrived.put(_SentinelAnswer(error=error))


def _answer_of(sentinel: redis.Redis, service: str) -> _SentinelAnswer:
    try:
        client: Any = sentinel
        found = client.execute_command("SENTINEL MASTER", service)
        epoch, address = int(found["config-epoch"]), (str(found["ip"]), int(found["port"]))
        if found.get("is_failover_in_progress") or "failover_in_progress" in found["flags"]:
            host, port = client.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", service)
            if (promoted := (_text(host), int(port))) != address:
                # the leader knows it a second before the others
                return _SentinelAnswer(epoch + 1, promoted)
        return _SentinelAnswer(epoch, address)
    except Exception as error:  # the client raises any class on bytes that are no reply
        return _SentinelAnswer(error=error)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _count_masters(answers: Sequence[_SentinelAnswer]) -> int:
    return sum(each.address is not None for each in answers)


def _best(answers: Sequence[_SentinelAnswer], service: str) -> _SentinelAnswer:
    found = max(answers, key=lambda answer: answer.epoch, default=_SentinelAnswer())
    if found.address is not None:
        return found
    errors = [each.error for each in answers if each.error is not None]
    refusals = [each for each in errors if _is_refusal(each)]
    if refusals:
        raise SentinelRefused(f"its Sentinels: {refusals[0]}")
    told = f": {errors[0]}" if errors else ""
    raise MasterNotFoundError(f"no Sentinel named a master of {service!r}{told}")


def _is_refusal(error: Exception) -> bool:
    """Whether a Sentinel itself answered with an error: log-in, right, unknown service."""
    return isinstance(
        error, redis.exceptions.ResponseError | redis.exceptions.AuthenticationError
    ) and not isinstance(error, redis.exceptions.BusyLoadingError)


def _watch(finder: "weakref.ref[MasterFinder]", doubted: threading.Event) -> None:
    while (found := finder()) and found.is_watched_here:
        found.ask_again_safely()
        del found  # so that it can end while we wait
        time.sleep(LEAST_PAUSE_S)
        doubted.wait(ASK_EVERY_S - LEAST_PAUSE_S)
        doubted.clear()


class _MasterConnection:
    """Connects to the present master, and makes sure that it is one."""

    host: str
    port: int

    def __init__(self, *, finder: MasterFinder, **options: Any) -> None:
        self.finder = finder
        options["redis_connect_func"] = _greet
        super().__init__(**options)

    def _connect(self) -> Any:
        self.host, self.port = self.finder.address()
        try:
            return super()._connect()  # type: ignore[misc]
        except OSError:
            self.finder.doubt()
            raise

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)  # type: ignore[misc]
        except redis.exceptions.ReadOnlyError:
            self.disconnect()  # type: ignore[attr-defined]
            self.finder.doubt()
            raise
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            self.finder.doubt()
            raise

    @property
    def is_stale(self) -> bool:
        """Whether another server is the master by now."""
        return (self.host, self.port) != self.finder.address()


def _greet(connection: Any) -> None:
    connection.on_connect()
    if role_of(connection) != "master":
        connection.finder.doubt()
        raise redis.exceptions.ConnectionError("the server that answered is no master any more")


class _PlainMasterConnection(_MasterConnection, redis.Connection):
    """To the master, without TLS."""


class _TlsMasterConnection(_MasterConnection, redis.SSLConnection):
    """To the master, over TLS."""


class MasterPool(SafePool):
    """Connections to the master; none to a former one is given out."""

    def __init__(self, finder: MasterFinder, *, is_tls: bool, **options: Any) -> None:
        self._finder = finder
        kind = _TlsMasterConnection if is_tls else _PlainMasterConnection
        super().__init__(connection_class=kind, finder=finder, **options)
        finder.serve(self)

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """Return a connection to the master of now."""
        connection: Any = super().get_connection(*args, **options)
        try:
            if connection.is_stale:
                connection.disconnect()
                connection.connect()
        except BaseException:
            self.release(connection)
            raise
        return connection

    def close(self) -> None:
        """Close every connection, those to the Sentinels too."""
        self._finder.close()
        super().close()


def open_master(
    sentinels: Sequence[Address],
    service: str,
    options: Mapping[str, Any],
    sentinel_options: Mapping[str, Any],
    *,
    is_tls: bool,
) -> redis.Redis:
    """Return a client of the master of a Sentinel set; connects at the first call."""
    finder = MasterFinder(sentinels, service, sentinel_options)
    return RedisClient.from_pool(MasterPool(finder, is_tls=is_tls, **options))
