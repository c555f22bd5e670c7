"""The small files of a Delta table, as its log has them: what tidy may merge."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.table import ProtocolVersions

from duebridge.errors import ConfigError

FILE_BYTES = 128 * 1024 * 1024
SMALL_BYTES = FILE_BYTES // 2
_FEATURES = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}
)
_IDENTITY_COLUMNS, _NAMES_FEATURES = 6, 7  # writer versions


class SmallFile(msgspec.Struct, frozen=True):
    """A file to merge; `values` are those of its partition.

    `path` is its name within the table. Delta's log has that percent-encoded, over the escapes that
    the folder of a partition may have; the actions of `deltalake` encode it themselves.
    """

    path: str
    size_bytes: int
    values: dict[str, str | None]

    @property
    def folder(self) -> str:
        """The directory that it is in."""
        return self.path.rpartition("/")[0]

    @property
    def partition(self) -> tuple[str, list[tuple[str, bool, str]]]:
        """Its directory and values: other writers may put several partitions in one directory."""
        values = sorted(self.values.items())
        return self.folder, [(name, value is None, value or "") for name, value in values]


def small_files(delta: DeltaTable) -> list[SmallFile]:
    """Return the small files of a version; raises `ConfigError` for a table of newer features."""
    if got := _too_new(delta.protocol()):
        expected = "expected a table of the oldest protocol (reader version 1, writer features of"
        raise ConfigError(
            f"{delta.table_uri}: {expected} {', '.join(sorted(_FEATURES))} alone); got {got}:"
            " use its writer's own OPTIMIZE"
        )
    rows = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    return [
        SmallFile(unquote(row["path"]), row["size_bytes"], _values(row))
        for row in sorted(rows, key=lambda row: (row["modification_time"], row["path"]))
        if row["size_bytes"] < SMALL_BYTES
    ]


def _too_new(protocol: ProtocolVersions) -> str:
    """Return what `deltalake` cannot commit to a table of this protocol; empty for nothing."""
    if protocol.min_reader_version > 1:
        return f"reader version {protocol.min_reader_version}"
    if protocol.min_writer_version < _NAMES_FEATURES:
        is_known = protocol.min_writer_version < _IDENTITY_COLUMNS
        return "" if is_known else f"writer version {protocol.min_writer_version}"
    return ", ".join(sorted({*(protocol.writer_features or ())} - _FEATURES))


def _values(row: dict[str, Any]) -> dict[str, str | None]:
    """Return the values of a file's partition, as Delta's log has them."""
    found = {name: value for name, value in row.items() if name.startswith("partition.")}
    return {
        name.removeprefix("partition."): None if value is None else _logged(value)
        for name, value in found.items()
    }


def _logged(value: Any) -> str:
    """Return a partition's value as Delta's protocol writes it."""
    match value:
        case bool():
            return str(value).lower()
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"
        case bytes():
            return value.decode()  # escaped, as the log has it
    return str(value)
