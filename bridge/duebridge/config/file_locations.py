"""The URIs of files and object stores, and their options; nothing here needs a network.

    /var/lib/cold                         file:///var/lib/cold
    s3://BUCKET/cold                      s3a:// is the same
    gs://BUCKET/cold
    abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/cold
    hdfs://NAMENODE:8020/cold

What a store is opened with stands beside the path, never in it: a path is printed and logged.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from duebridge.config.secrets import is_reference, take_out
from duebridge.errors import did_you_mean, unknown_name
from duebridge.ports.settings import Fault

Options: TypeAlias = Mapping[str, object]
PATH_STYLE = "path_style"
S3, GS, ABFS, HDFS, FILE = "s3", "gs", "abfs", "hdfs", "file"
_SCHEMES: Final[dict[str, str]] = {
    "s3": S3, "s3a": S3, "gs": GS, "abfs": ABFS, "abfss": ABFS, "hdfs": HDFS, "file": FILE,
}  # fmt: skip
OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    S3: frozenset(
        {"endpoint", "region", PATH_STYLE, "access_key_id", "secret_access_key", "session_token"}
    ),
    GS: frozenset(),
    ABFS: frozenset({"account_key", "sas_token", "client_id", "client_secret", "tenant_id"}),
    HDFS: frozenset(),
    FILE: frozenset(),
}
SECRETS: Final = frozenset(
    {"secret_access_key", "session_token", "account_key", "sas_token", "client_secret"}
)
_NEEDS: Final = (
    ("access_key_id", "secret_access_key"),
    ("secret_access_key", "access_key_id"),
    ("session_token", "access_key_id"),
    ("client_id", "client_secret"),
    ("client_id", "tenant_id"),
    ("client_secret", "client_id"),
    ("tenant_id", "client_id"),
)
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<slashes>/*)(?P<rest>.*)", re.DOTALL)
_AUTHORITIES: Final = {
    S3: (re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"), "s3://BUCKET/PATH"),
    GS: (re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"), "gs://BUCKET/PATH"),
    ABFS: (
        re.compile(r"[a-z0-9$][a-z0-9-]{2,62}@[a-z0-9]{3,24}\.dfs\.[A-Za-z0-9.-]+"),
        "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
    ),
    HDFS: (re.compile(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?"), "hdfs://NAMENODE[:PORT]/PATH"),
}
_ENDPOINT = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?/?")


class FileAddress(NamedTuple):
    """A path or URI in parts: `kind` is one of S3, GS, ABFS, HDFS and FILE.

    `authority` is the bucket, the container with its account, or the name node; empty for a file.
    """

    kind: str
    authority: str
    path: str

    @property
    def store(self) -> str:
        """The store that the options belong to: `s3://BUCKET`."""
        return f"{self.kind}://{self.authority}"


def address_of(path: str) -> FileAddress:
    """Return the parts of a path or URI; raises `ValueError`, which says what was expected.

    >>> address_of("s3a://bucket/cold/")
    FileAddress(kind='s3', authority='bucket', path='/cold')
    """
    if path.startswith("/"):
        return FileAddress(FILE, "", _tidy(path))
    match = _URI.fullmatch(path)
    if match is None:
        raise ValueError(f"expected an absolute path, or a URI; got {path!r}")
    scheme = match["scheme"].lower()
    if scheme not in _SCHEMES:
        raise ValueError(unknown_name("a scheme", scheme, _SCHEMES))
    if _SCHEMES[scheme] == FILE:
        if match["slashes"] not in ("/", "///"):
            raise ValueError("expected file:///PATH; got another host, or none")
        return FileAddress(FILE, "", _tidy(f"/{match['rest']}"))
    return _remote(_SCHEMES[scheme], match["slashes"], match["rest"])


def _remote(kind: str, slashes: str, rest: str) -> FileAddress:
    """Return an address of a store; messages omit it, since it may contain a secret."""
    if "?" in rest or "#" in rest:  # what is joined to the path would be part of the query
        raise ValueError(
            "expected no query: endpoint_override is options.endpoint beside the path, and region"
            " and keys are options too"
        )
    authority, _, path = rest.partition("/")
    form, said = _AUTHORITIES[kind]
    if slashes != "//" or not form.fullmatch(authority):
        raise ValueError(f"expected {said}; got another form")
    return FileAddress(kind, authority, _tidy(f"/{path}"))


def _tidy(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    if ".." in parts or "." in parts:
        raise ValueError("expected a path without . and ..")
    return "/" + "/".join(parts)


def location_faults(path: str, options: Options) -> Iterator[Fault]:
    """Yield the faults of a path, and of the options beside it."""
    try:
        kind = address_of(path).kind
    except ValueError as error:
        yield ("path",), str(error)
        return
    for name, value in options.items():
        if text := option_fault(kind, name, value):
            yield ("options", name), text
    for name, other in _NEEDS:
        if name in options and other not in options:
            yield ("options", name), f"expected {other} beside it; got none"


def unlike_faults(places: Iterable[tuple[tuple[str, ...], str, Options]]) -> Iterator[Fault]:
    """Yield a fault for options that are not those of an earlier place in the same store.

    Spark opens a bucket with one set of options, whatever file of it is read.
    """
    known: dict[str, tuple[str, Options]] = {}
    for at, path, options in places:
        first, wanted = known.setdefault(address_of(path).store, (".".join(at), options))
        if options != wanted:
            yield at, f"expected those of {first}, which is in the same store"


def option_fault(kind: str, name: str, value: object) -> str:
    """Return the fault of an option as written, or an empty text."""
    known = OPTIONS[kind]
    if name not in known:
        listed = f", expected one of {', '.join(sorted(known))}" if known else ", it takes none"
        return f"unknown option of {kind}://{did_you_mean(name, known) or listed}"
    if name in SECRETS:
        is_right = isinstance(value, str) and is_reference(value) and ":-" not in value
        return "" if is_right else "expected ${VAR} or ${file:/path}, since it is a secret"
    is_known = not isinstance(value, str) or take_out(value, lambda _: "") == value
    return value_fault(name, value) if is_known else ""


def value_fault(name: str, value: object) -> str:
    """Return the fault of an option's value with its references resolved, or an empty text."""
    if name == PATH_STYLE:
        return "" if value in (True, False, "true", "false") else "expected true or false"
    if not isinstance(value, str) or not value:
        return "expected text"
    if name == "endpoint" and not _ENDPOINT.fullmatch(value):
        return "expected http[s]://HOST[:PORT]"
    return ""
