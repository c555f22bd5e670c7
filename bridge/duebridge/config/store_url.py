"""Reads the URL of a delay store; messages omit it, since it may contain a password."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

_SENTINEL, _CLUSTER = "sentinel", "cluster"
SCHEMES = (
    "redis://",
    "rediss://",
    "redis+sentinel://",
    "rediss+sentinel://",
    "redis+cluster://",
    "rediss+cluster://",
    "unix://",
    "embedded:",
)
_LIKE_REDIS = SCHEMES[:6]
_PORTS = {_SENTINEL: 26379, _CLUSTER: 6379}
_FORMS = {
    _SENTINEL: "redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]/SERVICE[/DB]",
    _CLUSTER: "redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]",
}
PERCENT_ENCODED = "percent-encoded: %40 for @, %2F for /, %23 for #, %3F for ?"


class SetAddress(NamedTuple):
    """The address of a set of servers: its Sentinels, or seeds of a Cluster; text is decoded.

    `service` is empty for a Cluster. `options` are those of the query.
    """

    hosts: tuple[tuple[str, int], ...]
    is_tls: bool
    user: str | None
    password: str | None
    service: str
    database: int
    options: Mapping[str, str]


def url_fault(url: str) -> str:
    """Return the fault of a store's URL, or an empty text."""
    if not url.startswith(SCHEMES):
        return f"expected {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}DIR; got another scheme"
    try:
        is_cut = is_cut_by_password(url)
    except ValueError:
        return "expected redis://[USER:PASSWORD@]HOST:PORT/DB; got one that cannot be read"
    if url.startswith(_LIKE_REDIS) and is_cut:
        return f"expected user and password {PERCENT_ENCODED}"
    if kind := set_kind(url):
        try:
            read_set_address(url)
        except ValueError as error:
            return f"expected {_FORMS[kind]}; got {error}"
    return ""


def is_cut_by_password(url: str) -> bool:
    """Tell whether a raw / or # before the @ ends the server's name; raises `ValueError`."""
    parts = urlsplit(url)
    return "@" in parts.path or bool(parts.fragment)


def set_kind(url: str) -> str:
    """Return `sentinel`, `cluster`, or an empty text for the URL of one server."""
    found = url.partition("://")[0].partition("+")[2]
    return found if found in _FORMS else ""


def read_set_address(url: str) -> SetAddress:
    """Read the URL of a Sentinel set or a Cluster; raises `ValueError`, which quotes none of it."""
    kind, parts = set_kind(url), urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    service, database = _service(parts.path) if kind == _SENTINEL else _no_service(parts.path)
    return SetAddress(
        tuple(_host(each, _PORTS[kind]) for each in hosts.split(",")),
        url.startswith("rediss"),
        unquote(user) or None,
        unquote(password) or None,
        service,
        database,
        dict(parse_qsl(parts.query, strict_parsing=bool(parts.query))),
    )


def _host(text: str, default_port: int) -> tuple[str, int]:
    if text.startswith("["):  # IPv6
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    if not host:
        raise ValueError("an empty host")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("a port that is no number up to 65535")
    return unquote(host), int(port or default_port)


def _service(path: str) -> tuple[str, int]:
    service, _, database = path.removeprefix("/").partition("/")
    if not service:
        raise ValueError("no service, the name that the Sentinels watch")
    if database and not (database.isascii() and database.isdigit()):
        raise ValueError("a database that is no number")
    return unquote(service), int(database or 0)


def _no_service(path: str) -> tuple[str, int]:
    if path not in ("", "/", "/0"):
        raise ValueError("a path, but a Cluster has one database only")
    return "", 0
