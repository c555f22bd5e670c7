"""Files in any place of the configuration: a path, or a URI of s3, gs, abfs, hdfs or file.

import os
from typing import Any
from uuid import uuid4

from pyarrow.fs import FileSystem, FileType, LocalFileSystem

from duebridge.config.places import FILE, HDFS
from duebridge_connectors.spark.files import object_store
from duebridge_connectors.spark.files.arrow import hdfs_native, opened
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


def open_filesystem(uri: str) -> tuple[Any, str]:
    """Return the file system of a path or URI, and the path within it."""
    files, path = FileSystem.from_uri(uri)
    return files, path.rstrip("/")
