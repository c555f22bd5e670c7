"""What is settled on the driver before a row is read or written: options, columns, store."""

from collections.abc import Mapping
from hashlib import sha256
from uuid import uuid4

from pyspark.sql.types import StructType

from duebridge.errors import ConfigError
from duebridge.store.keys import Shard
from duebridge_connectors.spark.loader import Job
from duebridge_connectors.spark.options import (
    JournalOptions,
    ReadOptions,
    journal_options,
    read_options,
    write_options,
)
from duebridge_connectors.spark.place import Place, config_of, open_route, place_of, shards_to_read
from duebridge_connectors.spark.schema import check_columns

_CHECKPOINT = "checkpointLocation"


def plan_write(given: Mapping[str, str], schema: StructType, overwrite: bool = False) -> Job:
    """Return what every task of a write needs; nothing is written yet.

    Raises `ConfigError` for options and columns, `StoreUnavailable` and `StoreUnfit`.
    """
    options = write_options(given)
    if overwrite:
        raise ConfigError('expected mode("append"): nothing takes back what is scheduled')
    check_columns(schema, options.id_columns)
    config = config_of(options)
    if config is None:
        raise ConfigError("option config: missing")
    place = place_of(options, config)
    route, shards = open_route(place, config, options.route)
    run = options.run or _run_of(given.get(_CHECKPOINT))
    return Job(options, place, route, shards, config.brokers[route.target.broker].type, run)


def plan_read(given: Mapping[str, str]) -> tuple[ReadOptions, Place, list[Shard]]:
    """Return what a read of the store needs; raises `ConfigError` and `StoreUnavailable`."""
    options = read_options(given)
    place = place_of(options, config_of(options))
    return options, place, shards_to_read(place, options.route)


def plan_journal(given: Mapping[str, str]) -> tuple[JournalOptions, Place, list[Shard]]:
    """Return what a read of the journal needs; raises `ConfigError` and `StoreUnavailable`."""
    options = journal_options(given)
    place = place_of(options, config_of(options))
    return options, place, shards_to_read(place, options.route)


def _run_of(checkpoint: str | None) -> str:
    """Return a name for this run; a stream's is its checkpoint's, so that it outlives a restart."""
    return uuid4().hex[:12] if checkpoint is None else sha256(checkpoint.encode()).hexdigest()[:12]
