"""Delta tables without a JVM, at any place that `deltalake` reaches: opened, or made."""

from collections.abc import Mapping

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from duebridge.errors import ConfigError


def opened_table(root: str, expected: str = "a Delta table") -> DeltaTable:
    """Return the newest version of a table; raises `ConfigError` if there is none."""
    try:
        return DeltaTable(root)
    except TableNotFoundError as error:
        raise ConfigError(f"{root}: expected {expected}; got none") from error


def made_table(
    root: str, schema: pa.Schema, partitions: list[str], configuration: Mapping[str, str]
) -> DeltaTable:
    """Return the newest version of a table, made without rows if there is none."""
    return DeltaTable.create(
        root, schema, mode="ignore", partition_by=partitions, configuration=configuration
    )
