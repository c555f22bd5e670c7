"""Opens places with Arrow; HDFS by the package hdfs-native, which needs no Java."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from pyarrow import PythonFile
from pyarrow.fs import (
    AzureFileSystem,
    FileInfo,
    FileSystem,
    FileType,
    FSSpecHandler,
    GcsFileSystem,
    LocalFileSystem,
    PyFileSystem,
    S3FileSystem,
)

from duebridge.config.file_locations import ABFS, FILE, GS, HDFS, S3
from duebridge.errors import ConfigError
from duebridge_connectors.spark.files.location import FileLocation, Settings, is_path_style

HDFS_CLIENT = {  # some 12 s without a name node, then an error; by default it is minutes
    "dfs.client.failover.max.attempts": "6",
    "dfs.client.failover.sleep.base.millis": "500",
    "dfs.client.failover.sleep.max.millis": "4000",
}


def opened(place: FileLocation) -> tuple[FileSystem, str]:
    """Return the file system of a place, one for each store in a process, and the path in it.

    Raises `FileNotFoundError` for a missing bucket: what is listed there would look like no files.
    """
    kind, authority, path = place.address
    files = _opened(kind, authority, tuple(sorted(place.settings().items())))
    return files, f"{_bucket(kind, authority)}{path}".rstrip("/")


@lru_cache(maxsize=16)
def _opened(kind: str, authority: str, settings: tuple[tuple[str, str], ...]) -> FileSystem:
    files, bucket = _OPEN[kind](authority, dict(settings)), _bucket(kind, authority)
    if bucket and _is_missing(files, bucket):
        raise FileNotFoundError(f"{kind}://{authority}: expected a bucket; there is none")
    return files


def _bucket(kind: str, authority: str) -> str:
    """Return the bucket or container, which Arrow takes as the first part of a path."""
    return "" if kind in (FILE, HDFS) else authority.partition("@")[0]


def _is_missing(files: FileSystem, bucket: str) -> bool:
    try:
        return bool(files.get_file_info(bucket).type is FileType.NotFound)
    except OSError:  # forbidden, perhaps, unlike the files in it; their reader gets the error
        return False


def _local(authority: str, settings: Settings) -> FileSystem:  # noqa: ARG001 - as the others
    return LocalFileSystem()


def _s3(authority: str, settings: Settings) -> FileSystem:  # noqa: ARG001 - a path has its bucket
    has_endpoint = "endpoint" in settings
    given = {
        "endpoint_override": settings.get("endpoint"),
        "region": settings.get("region"),
        "access_key": settings.get("access_key_id"),
        "secret_key": settings.get("secret_access_key"),
        "session_token": settings.get("session_token"),
        "force_virtual_addressing": not is_path_style(settings) if has_endpoint else None,
        "allow_delayed_open": True,  # a small file is one request, not three
    }
    return S3FileSystem(**{name: value for name, value in given.items() if value is not None})


def _gs(authority: str, settings: Settings) -> FileSystem:  # noqa: ARG001 - as the others
    return GcsFileSystem()


def _abfs(authority: str, settings: Settings) -> FileSystem:
    account = authority.partition("@")[2].partition(".")[0]
    return AzureFileSystem(account, **settings)


def _hdfs(authority: str, settings: Settings) -> FileSystem:  # noqa: ARG001 - as the others
    host, _, port = authority.partition(":")
    fsspec = hdfs_native(".fsspec")
    opened = fsspec.HdfsFileSystem(host, int(port) if port else None, **HDFS_CLIENT)
    return PyFileSystem(_Hdfs(opened))


class _Hdfs(FSSpecHandler):  # type: ignore[misc]
    """Opens a file without asking first, since no answer would look like no file.

    It knows when a file was written, too: Arrow looks for `mtime`, which HDFS's client calls else.
    """

    @staticmethod
    def _create_file_info(path: str, info: Mapping[str, Any]) -> FileInfo:
        written_s = info["modification_time"] / 1000
        return FSSpecHandler._create_file_info(path, {**info, "mtime": written_s})

    def open_input_stream(self, path: str) -> PythonFile:
        return PythonFile(self.fs.open(path, mode="rb"), mode="r")

    def open_input_file(self, path: str) -> PythonFile:
        return self.open_input_stream(path)


def hdfs_native(part: str = "") -> Any:
    """Return the package, or a module of it; raises `ConfigError` if it is not installed."""
    from importlib import import_module

    try:
        return import_module(f"hdfs_native{part}")
    except ImportError:
        missing = "expected the Python package hdfs-native, which is not installed"
        raise ConfigError(f"hdfs: {missing}; type: pip install 'duebridge[hdfs]'") from None


_OPEN: Mapping[str, Callable[[str, Settings], FileSystem]] = {
    FILE: _local, S3: _s3, GS: _gs, ABFS: _abfs, HDFS: _hdfs,
}  # fmt: skip
