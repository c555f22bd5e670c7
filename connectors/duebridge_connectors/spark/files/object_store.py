"""Options of object_store, which obstore and delta-rs are built on, and its conditional put.

A store that ignores the condition would let a second writer overwrite the first unseen, so each
process tries once whether a store knows it.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from duebridge.config.file_locations import ABFS, GS, PATH_STYLE, S3, FileAddress
from duebridge.errors import ConfigError
from duebridge_connectors.spark.files.location import FileLocation, Settings, is_path_style

PutMode: TypeAlias = Literal["create", "overwrite"]
PROBE = "_one_writer"  # Spark ignores names that begin with _
_NAMES = {
    S3: {
        "endpoint": "aws_endpoint",
        "region": "aws_region",
        "access_key_id": "aws_access_key_id",
        "secret_access_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
    },
    ABFS: {
        "account_key": "azure_storage_account_key",
        "sas_token": "azure_storage_sas_key",
        "client_id": "azure_storage_client_id",
        "client_secret": "azure_storage_client_secret",
        "tenant_id": "azure_storage_tenant_id",
    },
}


def options_of(place: FileLocation) -> dict[str, str]:
    """Return the options of object_store, which delta-rs calls `storage_options`; with secrets."""
    settings, address = place.settings(), place.address
    names: Mapping[str, str] = _NAMES.get(address.kind, {})
    found = {names[name]: value for name, value in settings.items() if name in names}
    if address.kind == S3:
        found |= _of_s3(address, settings)
    if address.kind == ABFS:
        found["azure_storage_account_name"] = address.authority.partition("@")[2].partition(".")[0]
    return found


def _of_s3(address: FileAddress, settings: Settings) -> dict[str, str]:
    is_virtual = PATH_STYLE in settings and not is_path_style(settings)
    found = {"aws_virtual_hosted_style_request": str(is_virtual).lower()}
    if (endpoint := settings.get("endpoint")) is None:
        return found
    if endpoint.startswith("http://"):
        found["aws_allow_http"] = "true"
    if is_virtual:  # this library expects the bucket in it
        scheme, _, host = endpoint.partition("://")
        found["aws_endpoint"] = f"{scheme}://{address.authority}.{host}"
    return found


class _Store(NamedTuple):
    """The settings that open a store; equal ones are opened once in a process."""

    kind: str
    authority: str
    options: tuple[tuple[str, str], ...]


def put(place: FileLocation, data: bytes, mode: PutMode) -> None:
    """Write an object atomically; with `create` only if there is none.

    Raises `FileExistsError`, `OSError`, and `ConfigError` for a store that knows no condition.
    """
    store, path = _store_of(place), place.address.path
    if mode == "create":
        _check(store, path.rpartition("/")[0])
    _put(store, path, data, mode)


def check_creates_once(folder: FileLocation) -> None:
    """Raise `ConfigError` if the store would create an object of this folder twice."""
    _check(_store_of(folder), folder.address.path.rstrip("/"))


def _store_of(place: FileLocation) -> _Store:
    options = tuple(sorted(options_of(place).items()))
    return _Store(place.address.kind, place.address.authority, options)


@lru_cache(maxsize=16)
def _opened(store: _Store) -> Any:
    config: Any = dict(store.options)
    if store.kind == GS:
        return GCSStore(store.authority)
    if store.kind == ABFS:
        return AzureStore(store.authority.partition("@")[0], config=config)
    allow_http = config.pop("aws_allow_http", "false") == "true"
    return S3Store(store.authority, config=config, client_options={"allow_http": allow_http})


@lru_cache(maxsize=64)
def _check(store: _Store, folder: str) -> None:
    """Raise `ConfigError` unless the store refuses to create an object that is there."""
    for _ in range(2):
        try:
            _put(store, f"{folder}/{PROBE}", b"", "create")
        except FileExistsError:
            return
    expected = "expected a store that refuses to create an object twice (If-None-Match: *)"
    raise ConfigError(f"{folder}: {expected}; this one overwrites: two writers would not be safe")


def _put(store: _Store, path: str, data: bytes, mode: PutMode) -> None:
    try:
        obstore.put(_opened(store), path.lstrip("/"), data, mode=mode, use_multipart=False)
    except AlreadyExistsError:
        raise FileExistsError(f"{path}: expected no object; there is one") from None
    except BaseError as error:
        said, _, _ = str(error).partition("\n\nDebug source:")  # a dump of its structs
        why = " ".join(said.split())  # what the store said may have lines
        raise OSError(f"{path}: cannot be written: {why}") from error
