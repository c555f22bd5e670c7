"""Files in any place of the configuration: a path, or a URI of s3, gs, abfs, hdfs or file.

import os
from typing import Any
from uuid import uuid4

from pyarrow.fs import FileSystem, FileType, LocalFileSystem

from duebridge.config.places import FILE, HDFS
from duebridge_connectors.spark.files import object_store
from duebridge_connectors.spark.files.arrow import HDFS_CLIENT, hdfs_native, opened
from duebridge_connectors.spark.files.place import Place, place_of


def create_file(uri: str, data: bytes) -> bool:
    """Create a file atomically and durably; return False, and change nothing, if it is there.

    Of two writers at once one creates it. That holds for a file system of the machine; elsewhere
    two writers of the same moment may both be told that they did.
    """
    files, path = open_filesystem(uri)
    if not isinstance(files, LocalFileSystem):
        if files.get_file_info(path).type != FileType.NotFound:
            return False
        write_file(uri, data)
        return True
    files.create_dir(path.rpartition("/")[0] or "/", recursive=True)
    return _linked(path, data)


def _linked(path: str, data: bytes) -> bool:
    draft = f"{path}.{uuid4().hex}.new"
    try:
        with open(draft, "xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    return True


def delta_options(place: Place | str) -> dict[str, str]:
    """Return the `storage_options` of delta-rs for a place; they hold secrets."""
    return object_store.options_of(place_of(place))


def _write(place: Place, data: bytes, *, may_replace: bool) -> None:
    kind = place.address.kind
    if kind == FILE:
        _write_local(Path(place.address.path), data, may_replace)
    elif kind == HDFS:
        _write_hdfs(place, data, may_replace)
    else:
        object_store.put(place, data, "overwrite" if may_replace else "create")


def _write_local(path: Path, data: bytes, may_replace: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
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
    finally:
        aside.unlink(missing_ok=True)


def _write_hdfs(place: Place, data: bytes, may_replace: bool) -> None:
    _, authority, path = place.address
    package = hdfs_native()
    client = package.Client(f"hdfs://{authority}", HDFS_CLIENT)
    folder, _, name = path.rpartition("/")
    aside = f"{folder}/.{name}.{uuid4().hex}"
    client.mkdirs(folder or "/", 0o755, True)
    with client.create(aside, package.WriteOptions(overwrite=False)) as file:
        file.write(data)
    try:
        client.rename(aside, path, may_replace)
    except BaseException:
        with suppress(OSError):
            client.delete(aside, False)
        raise
