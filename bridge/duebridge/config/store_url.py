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
_ONE_FORM = "redis://[USER:PASSWORD@]HOST:PORT/DB"
_SOCKET_FORM = "unix://[USER:PASSWORD@]/PATH"
_FORMS = {
    _SENTINEL: "redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]/SERVICE[/DB]",
    _CLUSTER: "redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]",
}
TLS_FILE_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password")
TLS_OPTIONS = (*TLS_FILE_OPTIONS, "ssl_check_hostname")
_OPTIONS = {
    _SENTINEL: ("sentinel_username", "sentinel_password", *TLS_OPTIONS),
    _CLUSTER: TLS_OPTIONS,
}
_ONE_OPTIONS = ("db", *TLS_OPTIONS)
FALSE_WORDS = ("0", "F", "FALSE", "N", "NO")  # of the client, in any case
_BOOLEANS = (*FALSE_WORDS, "1", "T", "TRUE", "Y", "YES", "ON")
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
    if url.startswith("embedded:"):
        return "" if url != "embedded:" else "expected embedded:DIR; got no directory"
    try:
        is_cut = is_cut_by_password(url)
    except ValueError:
        return f"expected {_ONE_FORM}; got one that cannot be read"
    if url.startswith(_LIKE_REDIS) and is_cut:
        return f"expected user and password {PERCENT_ENCODED}"
    return _options_fault(url) or _address_fault(url)


def _options_fault(url: str) -> str:
    """Return the fault of the query; a name is not shown: a raw ? in a password begins one."""
    known, query = _OPTIONS.get(set_kind(url), _ONE_OPTIONS), urlsplit(url).query
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        return "expected options as NAME=VALUE, joined by &; got another form"
    if any(name not in known for name, _ in pairs):
        return f"expected the options {', '.join(known)}; got another"
    if not url.startswith("rediss") and any(name in TLS_OPTIONS for name, _ in pairs):
        return "expected rediss:// where TLS options are given"
    for name, value in pairs:
        if name == "db" and not _is_number(value):
            return "expected db as digits; got no number"
        if name == "ssl_check_hostname" and value and value.upper() not in _BOOLEANS:
            return "expected ssl_check_hostname as yes or no; got another word"
    return ""


def _address_fault(url: str) -> str:
    kind = set_kind(url)
    try:
        if kind:
            read_set_address(url)
        elif url.startswith("unix://"):
            _check_socket(url)
        else:
            _check_server(url)
    except ValueError as error:
        return f"expected {_form(url)}; got {error}"
    return ""


def _form(url: str) -> str:
    return _SOCKET_FORM if url.startswith("unix://") else _FORMS.get(set_kind(url), _ONE_FORM)


def _check_socket(url: str) -> None:
    """Raise `ValueError` for what the client would pass over, and then open another file."""
    parts = urlsplit(url)
    if not parts.path.strip("/"):
        raise ValueError("no path")
    if parts.netloc.rpartition("@")[2]:
        raise ValueError("a host before the path")
    if parts.fragment:
        raise ValueError("a #, which ends the path: %23 stands for it")


def _check_server(url: str) -> None:
    """Raise `ValueError` for what the client of one server would pass over, or stumble over."""
    parts = urlsplit(url)
    _, port = _split_host(parts.netloc.rpartition("@")[2])  # without a host it is localhost
    _port(port, 0)
    _database(parts.path.strip("/"))


def is_cut_by_password(url: str) -> bool:
    """Whether a raw / or # before the @ ends the server's name; raises `ValueError`."""
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
    host, port = _split_host(text)
    if not host:
        raise ValueError("an empty host")
    return unquote(host), _port(port, default_port)


def _split_host(text: str) -> tuple[str, str]:
    if text.startswith("["):  # IPv6
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = text.partition(":")
    return host, port


def _port(text: str, default: int) -> int:
    if text and not (_is_number(text) and 0 < int(text) < 65536):
        raise ValueError("a port that is no number up to 65535")
    return int(text or default)


def _service(path: str) -> tuple[str, int]:
    service, _, database = path.removeprefix("/").partition("/")
    if not service:
        raise ValueError("no service, the name that the Sentinels watch")
    return unquote(service), _database(database)


def _database(text: str) -> int:
    if text and not _is_number(text):
        raise ValueError("a database that is no number")
    return int(text or 0)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10  # int() refuses thousands


def _no_service(path: str) -> tuple[str, int]:
    if path not in ("", "/", "/0"):
        raise ValueError("a path, but a Cluster has one database only")
    return "", 0
