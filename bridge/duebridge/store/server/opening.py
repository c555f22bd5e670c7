"""Makes the client that a store's URL names: of one server, a Sentinel set's master, a Cluster."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from duebridge.config.store_url import (
    FALSE_WORDS,
    TLS_FILE_OPTIONS,
    TLS_OPTIONS,
    SetAddress,
    read_set_address,
    set_kind,
    url_fault,
)
from duebridge.errors import ConfigError
from duebridge.ports.tls import TlsFiles, client_context
from duebridge.store.server.credentials import StoreCredentials, sentinels_login, split_login
from duebridge.store.server.errors import translated_client_errors
from duebridge.store.server.redis_client import RedisClient, SafePool, role_of
from duebridge.store.server.scripts import script_packer
from duebridge.store.server.sets.cluster import ClusterClient
from duebridge.store.server.sets.sentinel import open_master

Client: TypeAlias = redis.Redis | ClusterClient

TLS_FILES = TlsFiles(*TLS_FILE_OPTIONS)
NO_LIMIT = 2**31  # of connections: without one redis-py refuses the 101st call at once
NODE_TIMEOUT_S = 2.0  # of a Cluster: who asks several nodes in turn waits once for a frozen one


def open_client(
    url: str,
    socket_timeout_s: float,
    read_url: Callable[[], str] | None = None,
    own: Mapping[str, Any] = MappingProxyType({}),
) -> Client:
    """Return a client; only one of a Cluster connects at once. `read_url` as of `open_connection`.

    `own` are options of redis-py's for the connections to one server.

    `redis://`, `rediss://` and `unix://` are one server, `redis+sentinel://` the master of a
    Sentinel set, `redis+cluster://` a Cluster; `rediss+...` is over TLS. Raises `ConfigError`, and
    for a Cluster `StoreUnavailable` and `StoreUnfit`.
    """
    if fault := url_fault(url):
        raise ConfigError(f"store.url: {fault}")
    try:
        _check_files(url)
        sentinels = sentinels_login(url, read_url)
        url, login = split_login(url, read_url)
        options = {**_options(socket_timeout_s), **login}
        if set_kind(url) == "sentinel":
            return _open_sentinel(read_set_address(url), options, sentinels)
        if set_kind(url) == "cluster":
            return _open_cluster(read_set_address(url), options)
        if not url.startswith("unix://"):
            options["socket_keepalive"] = True
        options.update(command_packer=script_packer(), redis_connect_func=greet_master)
        return RedisClient.from_pool(SafePool.from_url(url, **options, **own))
    except ValueError:  # its text may quote a password: it is not passed on
        expected = "redis://[USER:PASSWORD@]HOST:PORT/DB"
        raise ConfigError(f"store.url: expected {expected}; got one that cannot be read") from None


def greet_master(connection: Any) -> None:
    """Log in to a server, and refuse a replica: behind an address that follows the master.

    A user without the right to ask, and a proxy that does not know the question, are let through: a
    replica refuses the first write.
    """
    connection.on_connect()
    try:
        role = role_of(connection)
    except redis.exceptions.ResponseError:
        return
    if role == "slave":
        text = "the server that answered is a replica, which takes no writes"
        raise redis.exceptions.ConnectionError(f"{text}: name its primary")


def _check_files(url: str) -> None:
    """Refuse any file that the client could not use; it would only stumble over it later."""
    if url.startswith("rediss"):
        given = dict(parse_qsl(urlsplit(url).query))
        files = TlsFiles(*(given.get(name) for name in TLS_FILE_OPTIONS))
        client_context(files, TLS_FILES, "store.url: ")


def _options(socket_timeout_s: float) -> dict[str, Any]:
    return {
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": socket_timeout_s,
        "socket_connect_timeout": socket_timeout_s,
        "client_name": "duebridge",
        "max_connections": NO_LIMIT,
        "driver_info": None,  # else each connection asks for CLIENT SETINFO, a right of its own
        # A hosted Redis may announce maintenance this way; other servers only refuse the question.
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }


def _tls_options(address: SetAddress) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: value for name, value in address.options.items() if name in TLS_OPTIONS
    }
    if "ssl_check_hostname" in found:
        found["ssl_check_hostname"] = found["ssl_check_hostname"].upper() not in FALSE_WORDS
    return found


def _open_sentinel(
    address: SetAddress, options: dict[str, Any], login: Mapping[str, StoreCredentials]
) -> redis.Redis:
    tls = _tls_options(address)
    asking = {
        **login,
        "maint_notifications_config": options["maint_notifications_config"],
        "ssl": address.is_tls,
        **tls,
    }
    of_server = {**options, **tls, "db": address.database, "socket_keepalive": True}
    return open_master(address.hosts, address.service, of_server, asking, is_tls=address.is_tls)


def _open_cluster(address: SetAddress, options: dict[str, Any]) -> ClusterClient:
    timeout_s = min(options["socket_timeout"], NODE_TIMEOUT_S)
    timeouts = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), timeout_s)
    secure = {"ssl": True, **_tls_options(address)} if address.is_tls else {}
    with translated_client_errors():  # a ValueError is about the url
        shared = {**options, **timeouts, **secure, "socket_keepalive": True}
        return ClusterClient(address.hosts, shared)
