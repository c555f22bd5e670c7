"""Files in any place of the configuration: a path, or a URI of s3, gs, abfs, hdfs or file.

                     ┌─ file ──▶ a file beside it, synced, then linked or renamed; its folder synced
write, create ─▶ kind┼─ hdfs ──▶ a file beside it, then renamed
                     └─ others ▶ one put, conditional for create
read, list, stream ──▶ Arrow

Two writers of one name are safe: `create_file` lets one of them win and tells the other.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow.fs import FileSystem

from duebridge.config.file_locations import FILE, HDFS
from duebridge.errors import JobFailed
from duebridge_connectors.spark.files import object_store
from duebridge_connectors.spark.files.arrow import HDFS_CLIENT, hdfs_native, opened
from duebridge_connectors.spark.files.location import FileLocation, location_of


def open_filesystem(place: FileLocation | str) -> tuple[FileSystem, str]:
    """Return the file system of a place, and the path within it.

    Raises `ConfigError` for a place that no library opens, or a missing variable of an option.
    """
    return opened(location_of(place))


@contextmanager
def naming_damage(path: str, of: str, so_far: str) -> Iterator[None]:
    """Raise `JobFailed`, which names the file, where a Parquet file is missing or damaged.

    Or where its store does not give it, which has no type of its own. `of` says what it is a part
    of, `so_far` what has happened.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        cause = " ".join(str(error).split())
        remedy = f"{so_far}: restore the file if it is damaged or missing; run the job again"
        text = f"{path}: expected a whole Parquet file of {of}; got: {cause}; {remedy}"
        raise JobFailed(text) from error


def open_output(place: FileLocation | str) -> Any:
    """Open a new file for writing; its directories are made where the store has any."""
    files, path = open_filesystem(place)
    if location_of(place).address.kind in (FILE, HDFS):
        files.create_dir(path.rpartition("/")[0] or "/", recursive=True)
    return files.open_output_stream(path)


def read_file(place: FileLocation | str) -> bytes:
    """Return the content of a file; raises `OSError`."""
    files, path = open_filesystem(place)
    with files.open_input_stream(path) as stream:
        return bytes(stream.read())


def write_file(place: FileLocation | str, data: bytes) -> None:
    """Write a file atomically, over what is there: readers see the old content or the new one."""
    _write(location_of(place), data, may_replace=True)


def create_file(place: FileLocation | str, data: bytes) -> bool:
    """Write a file atomically if there is none; return False, and change nothing, if there is.

    The same content is no second writer: a put that was repeated after a lost answer finds its own.
    """
    try:
        _write(location_of(place), data, may_replace=False)
    except FileExistsError:
        return read_file(place) == data
    return True


def remove_empty_folder(place: FileLocation | str, path: str) -> None:
    """Remove a folder of a place that has any, local or HDFS; leave one that is not empty."""
    located = location_of(place)
    with suppress(OSError, RuntimeError):  # the latter is a refusal of HDFS
        if located.address.kind == FILE:
            Path(path).rmdir()
        else:
            _hdfs_client(located).delete(path, False)


def check_creates_once(folder: FileLocation | str) -> None:
    """Raise `ConfigError` for a store whose writers would overwrite each other's new files.

    Whoever writes by another library asks this first; it may leave a file `_one_writer`.
    """
    if location_of(folder).address.kind not in (FILE, HDFS):
        object_store.check_creates_once(location_of(folder))


def delta_options(place: FileLocation | str) -> dict[str, str]:
    """Return the `storage_options` of delta-rs for a place; they hold secrets."""
    return object_store.options_of(location_of(place))


def _write(place: FileLocation, data: bytes, *, may_replace: bool) -> None:
    kind = place.address.kind
    if kind == FILE:
        _write_local(Path(place.address.path), data, may_replace)
    elif kind == HDFS:
        _write_hdfs(place, data, may_replace)
    else:
        object_store.put(place, data, "overwrite" if may_replace else "create")


def _write_local(path: Path, data: bytes, may_replace: bool) -> None:
    _make_folder(path.parent)
    aside = path.with_name(f".{path.name}.{uuid4().hex}")  # Spark ignores it if we are killed
    try:
        with aside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if may_replace:
            aside.replace(path)
        else:
            path.hardlink_to(aside)  # unlike a rename it fails if there is one
        sync_folder(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def _make_folder(path: Path) -> None:
    """Make a folder and those above it, each on the disk at once."""
    if path.is_dir():
        return
    _make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Bring the names in a local folder to the disk: a synced file is lost there without its name.

    A file system that knows no such call is left to its own order.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(folder)


def _hdfs_client(place: FileLocation) -> Any:
    return hdfs_native().Client(f"hdfs://{place.address.authority}", HDFS_CLIENT)


def _write_hdfs(place: FileLocation, data: bytes, may_replace: bool) -> None:
    path, client = place.address.path, _hdfs_client(place)
    folder, _, name = path.rpartition("/")
    aside = f"{folder}/.{name}.{uuid4().hex}"
    client.mkdirs(folder or "/", 0o755, True)
    with client.create(aside, hdfs_native().WriteOptions(overwrite=False)) as file:
        file.write(data)
    try:
        client.rename(aside, path, may_replace)
    except BaseException:
        with suppress(OSError):
            client.delete(aside, False)
        raise
