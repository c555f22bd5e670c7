"""Turns the client's errors into ours, whose class tells the caller what to do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis
from redis.exceptions import RedisClusterException, RedisError

from duebridge.errors import (
    OtherLife,
    RenewalNeeded,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnfit,
)
from duebridge.ports.tls import hinted
from duebridge.store.server.reconnects import CallSuppressed


class NodeUnresponsive(redis.exceptions.ConnectionError):
    """A node of a Cluster did not answer a moment ago, so the call was not sent."""


class SlotMigrating(StoreUnavailable):
    """The shard's slot is migrating; the node serves its other shards."""


class WritesRefused(StoreUnavailable):
    """The server answers reading calls, and refuses to write for now."""


class SentinelRefused(redis.exceptions.ConnectionError):
    """The Sentinels answered, and another configuration is needed: a password, a service."""


_AWAY: tuple[type[Exception], ...] = (
    redis.exceptions.ConnectionError,  # a Sentinel's MasterNotFoundError, too
    redis.exceptions.TimeoutError,
    redis.exceptions.BusyLoadingError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ClusterError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
)
_MOVING: tuple[type[Exception], ...] = (
    redis.exceptions.AskError,  # MovedError, too: followed once, and the slot had gone on
    redis.exceptions.TryAgainError,
)
_UNFIT: tuple[type[Exception], ...] = (
    redis.exceptions.InvalidResponse,
    redis.exceptions.AuthenticationError,
    redis.exceptions.AuthorizationError,
    redis.exceptions.NoPermissionError,
    SentinelRefused,
)
# Errors that the client lets through on bytes that are no reply to its request.
_CONFUSED = (ValueError, TypeError, AttributeError, LookupError, OverflowError)
_OF_CLIENT = (RedisError, RedisClusterException)
# Inside scripts, and from older servers, only the text tells.
_AWAY_WORDS = (
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "READONLY",
    "TRYAGAIN",
)
_NO_WRITES_WORDS = ("MISCONF", "NOREPLICAS")
_LOGIN_LACKS = "HELLO must be called with the client already authenticated"  # it sent none
_RIGHTS = "; `duebridge acl` prints the rights"
# A script was denied a command, a key or a channel: Redis 7.0; later ones, and Valkey.
_DENIED_WORDS = ("NOPERM", "The user executing the script", "ACL failure in script")


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn the client's errors into `StoreError`s; what is sent again decides their class."""
    try:
        yield
    except _OF_CLIENT as error:
        raise _translated(error) from error
    except _CONFUSED as error:
        text = f"unreadable reply from the delay store: {type(error).__name__}"
        raise StoreUnavailable(text) from error


@contextmanager
def translated_client_errors() -> Iterator[None]:
    """Turn what the client raises on purpose; a `ValueError` passes, as one about the URL."""
    try:
        yield
    except _OF_CLIENT as error:
        raise _translated(error) from error


def _translated(error: Exception) -> StoreError:
    return next(make(error) for kinds, make in _TABLE if isinstance(error, kinds))


def _refusal(error: Exception) -> StoreError:
    is_for_lack = str(error).startswith(_LOGIN_LACKS)
    why = "it wants a password, and store.url has none" if is_for_lack else error
    is_right = isinstance(error, redis.exceptions.NoPermissionError)
    return StoreUnfit(f"the delay store refused us: {why}{_RIGHTS * is_right}")


def _silence(error: Exception) -> StoreError:
    return StoreUnavailable(_no_answer(error))


def _migration(error: Exception) -> StoreError:
    return SlotMigrating(_no_answer(error))


def _no_answer(error: Exception) -> str:
    return f"the delay store did not answer: {hinted(str(error))}"


def _of_cluster(error: Exception) -> StoreError:
    """Judge what the Cluster client raises over another error: its cause says what it is."""
    return _refusal(error) if isinstance(error.__cause__, _UNFIT) else _silence(error)


def _from_text(error: Exception) -> StoreError:
    text = str(error)
    if text.startswith("OOM"):
        return StoreFull(f"the delay store is out of memory: {text}")
    if text.startswith("LIFE "):
        return OtherLife(text)
    if text.startswith("RENEW "):
        return RenewalNeeded(text)
    if text.startswith(_NO_WRITES_WORDS):
        return WritesRefused(f"the delay store cannot write now: {text}")
    if text.startswith(_AWAY_WORDS):
        return StoreUnavailable(f"the delay store cannot write now: {text}")
    if text.startswith(_DENIED_WORDS):
        return StoreUnfit(f"the delay store refused us: {text}{_RIGHTS}")
    return StoreError(text)


# The first that fits decides.
_TABLE: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Callable[..., StoreError]], ...]
_TABLE = (
    (
        redis.exceptions.OutOfMemoryError,
        lambda error: StoreFull(f"the delay store is out of memory: {error}"),
    ),
    (
        redis.exceptions.InvalidResponse,
        lambda error: StoreUnfit(f"the server that answered is not Redis or Valkey: {error}"),
    ),
    (
        NodeUnresponsive,
        lambda error: CallSuppressed(f"the delay store did not answer a moment ago: {error}"),
    ),
    (_UNFIT, _refusal),
    (_MOVING, _migration),
    (_AWAY, _silence),
    (RedisClusterException, _of_cluster),  # no RedisError
    (RedisError, _from_text),
)
