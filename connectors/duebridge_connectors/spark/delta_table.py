"""Delta tables without a JVM, at any place that `deltalake` reaches: opened, or made."""

from collections.abc import Mapping

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from duebridge.errors import ConfigError
from duebridge_connectors.spark.files.place import Place
from duebridge_connectors.spark.filesystem import delta_options


def opened_table(root: Place | str, expected: str = "a Delta table") -> DeltaTable:
    """Return the newest version of a table; raises `ConfigError` if there is none."""
    try:
        return DeltaTable(str(root), storage_options=delta_options(root))
    except TableNotFoundError as error:
        raise ConfigError(f"{root}: expected {expected}; got none") from error


def made_table(
    root: Place | str, schema: pa.Schema, partitions: list[str], configuration: Mapping[str, str]
) -> DeltaTable:
    """Return the newest version of a table, made without rows if there is none."""
    return DeltaTable.create(
        str(root),
        schema,
        mode="ignore",
        partition_by=partitions,
        configuration=configuration,
        storage_options=delta_options(root),
    )
