"""The connection to the delay store: runs scripts, and turns the client's errors into ours.

The client itself never repeats a call: a script whose reply was lost may have run, and only
`DelayStore` knows which scripts may run twice.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import NoScriptError, RedisClusterException, RedisError
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from duebridge.config.store_url import url_fault
from duebridge.errors import (
    ConfigError,
    OtherLife,
    RenewalNeeded,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnfit,
)
from duebridge.ports.tls import TlsFiles, client_context, hinted
from duebridge.store.server.credentials import split_login
from duebridge.store.server.reconnects import NotAsked, Reconnects
from duebridge.store.server.scripts import Script, names, script

T = TypeVar("T")
Argument: TypeAlias = bytes | str | int
Client: TypeAlias = "redis.Redis | RedisCluster"

SOCKET_TIMEOUT_S = 5.0
REPEAT_FOR_S = 10.0  # the usual patience of a call while the store is away
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0
TLS_FILES = TlsFiles("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password")
URL_OPTIONS = ("db", *map(str, TLS_FILES), "ssl_check_hostname")

_AWAY = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.BusyLoadingError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ClusterError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
    redis.exceptions.TryAgainError,
)
_UNFIT = (
    redis.exceptions.AuthenticationError,
    redis.exceptions.AuthorizationError,
    redis.exceptions.NoPermissionError,
    redis.exceptions.InvalidResponse,
)
# Errors that the client lets through on bytes that are no reply to its request.
_CONFUSED = (ValueError, TypeError, AttributeError, LookupError, OverflowError)
_DENIED_WORDS = ("The user executing the script", "ACL failure in script")
_AWAY_WORDS = ("BUSY", "READONLY", "MISCONF", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN")


class Reply(NamedTuple):
    """The answer of a script, and whether the call was repeated."""

    value: Any
    repeated: bool


class Connection:
    """Runs scripts on a standalone server or on a Cluster; may be shared by threads.

    `observe` gets the script and the seconds of every call, answered or not.
    """

    def __init__(
        self, client: Client, observe: Callable[[str, float], None] = lambda _, __: None
    ) -> None:
        self.client = client
        self.observe = observe
        self._reconnects = Reconnects()

    def load_scripts(self, repeat_for_s: float = 0.0) -> None:
        """Load every script into the server, so that no later call has to send one."""

        def load() -> None:
            with translated_errors():
                for name in names():
                    self.client.script_load(script(name).source)

        self.patiently(load, repeat_for_s)

    def run(
        self,
        called: Script,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        repeat_for_s: float = 0.0,
    ) -> Reply:
        """Run a script; while the store is away, repeat the call for `repeat_for_s`.

        Raises `StoreUnavailable` (the script may have run), `StoreFull`, `StoreUnfit` and
        `StoreError`.
        """
        return self.patiently(lambda: self._run_timed(called, keys, arguments), repeat_for_s)

    def patiently(self, call: Callable[[], Any], repeat_for_s: float) -> Reply:
        """Return the answer of a call; repeat it for `repeat_for_s` while the store is away.

        Raises as the call does.
        """
        return _repeat(lambda: self._asked(call), repeat_for_s)

    def _asked(self, call: Callable[[], T]) -> T:
        self._reconnects.check()
        try:
            answer = call()
        except StoreUnavailable:
            self._reconnects.failed()
            raise
        self._reconnects.answered()
        return answer

    def _run_timed(self, called: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        started_at = time.perf_counter()
        try:
            return self._run_once(called, keys, arguments)
        finally:
            self.observe(called.name, time.perf_counter() - started_at)

    def _run_once(self, called: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        rest = (len(keys), *keys, *map(_encoded, arguments))
        with translated_errors():
            try:
                return self._execute("EVALSHA", called.sha, *rest)
            except NoScriptError:  # restarted, failed over, or SCRIPT FLUSH: it did not run
                self.client.script_load(called.source)
            try:
                return self._execute("EVALSHA", called.sha, *rest)
            except NoScriptError:  # flushed again meanwhile: send it whole
                return self._execute("EVAL", called.source, *rest)

    def _execute(self, *command: Argument) -> Any:
        return self.client.execute_command(*command)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Close every socket."""
        self.client.close()


def _repeat(call: Callable[[], Any], repeat_for_s: float) -> Reply:
    give_up_at = time.monotonic() + repeat_for_s
    pause_s, repeated = FIRST_PAUSE_S, False
    while True:
        try:
            return Reply(call(), repeated)
        except StoreUnavailable as error:
            wait_s = random.uniform(pause_s / 2, pause_s)  # noqa: S311 - jitter
            if time.monotonic() + wait_s >= give_up_at:
                raise
            repeated |= not isinstance(error, NotAsked)
        time.sleep(wait_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _encoded(argument: Argument) -> Argument:
    """Return an argument as it is sent; a damaged id goes back as it came."""
    return argument.encode(errors="surrogateescape") if isinstance(argument, str) else argument


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn the client's errors into ours, whose class tells the caller what to do."""
    try:
        with _translated_client_errors():
            yield
    except _CONFUSED as error:
        text = f"unreadable reply from the delay store: {type(error).__name__}"
        raise StoreUnavailable(text) from error


@contextmanager
def _translated_client_errors() -> Iterator[None]:
    try:
        yield
    except redis.exceptions.OutOfMemoryError as error:
        raise StoreFull(f"the delay store is out of memory: {error}") from error
    except redis.exceptions.InvalidResponse as error:
        text = f"the server that answered is not Redis or Valkey: {error}"
        raise StoreUnfit(text) from error
    except _UNFIT as error:
        raise StoreUnfit(f"the delay store refused us: {error}") from error
    except RedisClusterException as error:  # no RedisError; its cause says what is the matter
        if isinstance(error.__cause__, _UNFIT):
            raise StoreUnfit(f"the delay store refused us: {error}") from error
        raise StoreUnavailable(f"the delay store did not answer: {error}") from error
    except _AWAY as error:
        raise StoreUnavailable(f"the delay store did not answer: {hinted(str(error))}") from error
    except RedisError as error:
        raise _from_text(error) from error


def _from_text(error: RedisError) -> StoreError:
    text = str(error)
    if text.startswith("OOM"):
        return StoreFull(f"the delay store is out of memory: {text}")
    if text.startswith("LIFE "):
        return OtherLife(text)
    if text.startswith("RENEW "):
        return RenewalNeeded(text)
    if text.startswith(_AWAY_WORDS):  # inside scripts, and from older servers, only the text tells
        return StoreUnavailable(f"the delay store cannot write now: {text}")
    if text.startswith(_DENIED_WORDS):
        return StoreUnfit(f"the delay store refused us: {text}; `duebridge acl` prints the rights")
    return StoreError(text)


def open_connection(
    url: str,
    socket_timeout_s: float = SOCKET_TIMEOUT_S,
    repeat_for_s: float = 0.0,
    read_url: Callable[[], str] | None = None,
) -> Connection:
    """Return a connection to the store that `url` names; connects at the first call.

    To a Cluster it connects at once, for which `repeat_for_s` is the patience. `read_url` returns
    the URL as it is now: its user and password are read at each connect.

    `redis://` and `unix://` are standalone, `redis+cluster://` is a Cluster, `embedded:DIR` is a
    server of our own (`store.server.embedded`); `rediss://` and `rediss+cluster://` are the same
    over TLS, with `URL_OPTIONS` in the query. Raises `ConfigError` for any other.
    """
    if url.startswith("embedded:"):
        from duebridge.store.server.embedded import start_embedded

        directory = url.removeprefix("embedded:")
        if not directory:
            raise ConfigError("store.url: expected embedded:DIR; got no directory")
        return open_connection(start_embedded(directory), socket_timeout_s)
    if fault := url_fault(url):
        raise ConfigError(f"store.url: {fault}")
    try:
        _check_url_options(url)
        url, login = split_login(url, read_url)
        options = {**_options(socket_timeout_s), **login}
        if url.startswith(("redis+cluster://", "rediss+cluster://")):
            opening = partial(_open_cluster, url.replace("+cluster", "", 1), options)
            opened: Connection = _repeat(opening, repeat_for_s).value
            return opened
        if url.startswith(("redis://", "rediss://")):
            return Connection(redis.Redis.from_url(url, socket_keepalive=True, **options))
        return Connection(redis.Redis.from_url(url, **options))
    except ValueError:  # its text may quote a password: it is not passed on
        expected = "redis://[USER:PASSWORD@]HOST:PORT/DB"
        raise ConfigError(f"store.url: expected {expected}; got one that cannot be read") from None


@contextmanager
def opened_connection(
    url: str, repeat_for_s: float = 0.0, read_url: Callable[[], str] | None = None
) -> Iterator[Connection]:
    """Give a connection; raises as `open_connection`, and nothing that would quote the url."""
    try:
        connection = open_connection(url, repeat_for_s=repeat_for_s, read_url=read_url)
    except ValueError:  # what is wrong with a URL may be said by quoting its password
        raise ConfigError("store.url: expected a URL that can be read; got another") from None
    except OSError as error:
        raise StoreUnavailable(f"store: {error.strerror}: {error.filename}") from error
    try:
        yield connection
    finally:
        connection.close()


def _check_url_options(url: str) -> None:
    """Refuse what the client would only stumble over later, and any file that it could not use.

    An unknown name is not shown: an unescaped ? in a password begins one.
    """
    given = dict(parse_qsl(urlsplit(url).query, strict_parsing="?" in url))
    if not given.keys() <= set(URL_OPTIONS):
        raise ConfigError(f"store.url: expected the options {', '.join(URL_OPTIONS)}; got another")
    has_tls_options = any(name.startswith("ssl_") for name in given)
    if url.startswith("rediss"):
        files = TlsFiles(*(given.get(str(name)) for name in TLS_FILES))
        client_context(files, TLS_FILES, "store.url: ")
    elif has_tls_options:
        raise ConfigError("store.url: expected rediss:// where TLS options are given")


def _options(socket_timeout_s: float) -> dict[str, Any]:
    return {
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": socket_timeout_s,
        "socket_connect_timeout": socket_timeout_s,
        "client_name": "duebridge",
        "driver_info": None,  # else each connection asks for CLIENT SETINFO, a right of its own
        # A hosted Redis may announce maintenance this way; other servers only refuse the question.
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }


def _open_cluster(url: str, options: dict[str, Any]) -> Connection:
    with _translated_client_errors():  # a ValueError is about the url
        return Connection(RedisCluster.from_url(url, **options))
