"""Files on any file system that Arrow knows: a path, or a URI of file, s3, gs or hdfs."""

from typing import Any

from pyarrow.fs import FileSystem


def write_file(place: str, data: bytes) -> None:
    """Write a whole file, or nothing."""
    files, path = open_filesystem(place)
    files.create_dir(path.rpartition("/")[0] or "/", recursive=True)
    with files.open_output_stream(f"{path}.new") as stream:
        stream.write(data)
    files.move(f"{path}.new", path)


def open_filesystem(place: str) -> tuple[Any, str]:
    """Return the file system of a place, and its path there."""
    files, path = FileSystem.from_uri(place)
    return files, path.rstrip("/")
