"""Delta tables without a JVM, at any place that `deltalake` reaches: opened, or made.

Two writers are safe because a version is created once. A store that creates it twice would lose one
of them unseen, so a writer is refused there.
"""

from collections.abc import Mapping

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from duebridge.errors import ConfigError
from duebridge_connectors.spark.files.location import FileLocation
from duebridge_connectors.spark.filesystem import check_creates_once, delta_options


def opened_table(root: FileLocation | str, expected: str = "a Delta table") -> DeltaTable:
    """Return the newest version of a table; raises `ConfigError` if there is none."""
    try:
        return DeltaTable(str(root), storage_options=delta_options(root))
    except TableNotFoundError as error:
        raise ConfigError(f"{root}: expected {expected}; got none") from error


def written_table(root: FileLocation | str) -> DeltaTable:
    """Return the newest version of a table, to commit the next one; raises `ConfigError`."""
    check_creates_once(root)
    return opened_table(root)


def made_table(
    root: FileLocation | str,
    schema: pa.Schema,
    partitions: list[str],
    configuration: Mapping[str, str],
) -> DeltaTable:
    """Return the newest version of a table, to commit the next one; made empty if there is none.

    Raises `ConfigError`.
    """
    check_creates_once(root)
    return DeltaTable.create(
        str(root),
        schema,
        mode="ignore",
        partition_by=partitions,
        configuration=configuration,
        storage_options=delta_options(root),
    )
