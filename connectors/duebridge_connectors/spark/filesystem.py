"""Files on any file system that Arrow knows: a path, or a URI of file, s3, gs or hdfs."""

from typing import Any

from pyarrow.fs import FileSystem


def write_file(uri: str, data: bytes) -> None:
    """Write a file atomically."""
    files, path = open_filesystem(uri)
    files.create_dir(path.rpartition("/")[0] or "/", recursive=True)
    with files.open_output_stream(f"{path}.new") as stream:
        stream.write(data)
    files.move(f"{path}.new", path)


def open_filesystem(uri: str) -> tuple[Any, str]:
    """Return the file system of a path or URI, and the path within it."""
    files, path = FileSystem.from_uri(uri)
    return files, path.rstrip("/")
