"""The journal as a Delta table: a batch of the query is one commit, and in the table once.

    TABLE/day=2026-11-21/part-….parquet   written by tasks, never changed
    TABLE/_delta_log                      Delta's log: only what it names is in the table
    TABLE/_checkpoint                     how far the query has read the journal

Each commit sets a transaction of Delta, `duebridge.journal/QUERY`, to the number of its batch, and
one for each shard, `duebridge.journal/NAMESPACE/ROUTE/SHARD/EPOCH`, to the last entry that it has.
They are looked up before a batch is written, and the commit fails if another one has set them
since. The query keeps which entries of which shards its batches stand for: where it says otherwise
than the table, its checkpoint is of another place. Tables of older versions have no numbers of
shards: their next commit adds them. Another transaction says until when the table has every entry.

All commits go through `deltalake`, here and in the job tidy: it has one way of being alone with a
version on every store. Nothing but files that no version names is left by a writer that is killed.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pyarrow.fs import FileType

from duebridge.errors import ConfigError, JobFailed
from duebridge_connectors.spark.delta_table import made_table, opened_table
from duebridge_connectors.spark.files.location import FileLocation, location_of
from duebridge_connectors.spark.filesystem import open_filesystem
from duebridge_connectors.spark.source.journal.offset import ShardOffset
from duebridge_connectors.spark.table.journal_files import TABLE_SCHEMA, JournalFile

CHECKPOINT = "_checkpoint"
LANDED = "_manifests"  # of a table as version 0.2.0 wrote it
_BATCH = "duebridge.journal/{query}"
_SHARD = "duebridge.journal/{namespace}/{name}/{epoch}"
_COMPLETE = "duebridge.journal.complete_until_ms"
_CONFIGURATION = {
    "delta.checkpointInterval": "10",
    "delta.dataSkippingStatsColumns": "route,at,due_at,sequence",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.logRetentionDuration": "interval 7 days",
}


class JournalVersion:
    """One version of the table, and the commit of the next one."""

    def __init__(self, delta: DeltaTable) -> None:
        self._delta = delta

    @property
    def number(self) -> int:
        """The number of this version in Delta's log."""
        return self._delta.version()

    @property
    def complete_until_ms(self) -> int:
        """The table has every entry journalled before it, by the store's clock; 0: unknown."""
        found: int | None = self._delta.transaction_version(_COMPLETE)
        return found or 0

    @property
    def files(self) -> int:
        """How many files it has."""
        return int(self._added().num_rows)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(self._added()["num_records"].to_pylist())

    def batch(self, query: str) -> int:
        """Return the number of the last batch of a query in this version; -1 for none."""
        found = self._delta.transaction_version(_BATCH.format(query=query))
        return -1 if found is None else found

    def shard_number(self, name: str) -> int | None:
        """Return the last entry of a shard, by the name of `shard_numbers`; None if unknown."""
        found: int | None = self._delta.transaction_version(name)
        return found

    def reached(self, namespace: str, offset: Mapping[str, ShardOffset]) -> dict[str, int]:
        """Return the last entry that it has of the shards of an offset, of the same lives."""
        names = zip(offset, shard_numbers(namespace, offset), strict=True)
        found = {name: self.shard_number(number) for name, number in names}
        return {name: last for name, last in found.items() if last is not None}

    def commit(
        self,
        query: str,
        batch: int,
        files: Iterable[JournalFile],
        complete_until_ms: int = 0,
        reached: Mapping[str, int] | None = None,
    ) -> None:
        """Add a batch, atomically, and the `shard_numbers` that it has reached.

        Raises `JobFailed` if another run did so since this version.
        """
        numbers = {_BATCH.format(query=query): batch, **(reached or {})}
        if complete_until_ms > self.complete_until_ms:
            numbers[_COMPLETE] = complete_until_ms
        try:
            self._commit([_added(file) for file in files], numbers)
        except CommitFailedError as error:
            raise JobFailed(
                f"{self._delta.table_uri}: expected to be the only run of the job journal; got"
                f" batch {batch} from another one meanwhile. Nothing was added twice"
            ) from error

    def complete(self, until_ms: int) -> None:
        """Record that the table has every entry journalled before an instant."""
        if until_ms > self.complete_until_ms:
            with suppress(CommitFailedError):  # another run has said it meanwhile
                self._commit([], {_COMPLETE: until_ms})

    def _commit(self, files: list[AddAction], numbers: dict[str, int]) -> None:
        transactions = [Transaction(name, number) for name, number in numbers.items()]
        self._delta.create_write_transaction(
            list(files),
            "append",
            TABLE_SCHEMA,
            ["day"],
            commit_properties=CommitProperties(app_transactions=transactions),
        )

    def _added(self) -> pa.Table:
        return pa.table(self._delta.get_add_actions(flatten=True))


class JournalTable:
    """A table at a path or URI."""

    def __init__(self, root: FileLocation | str) -> None:
        self.place = location_of(root)
        self.root = self.place.uri.rstrip("/")
        self._files, self._path = open_filesystem(root)

    @property
    def _remedy(self) -> str:
        return f"Restore the newest {self.checkpoint} of this table, or start a new table"

    @property
    def checkpoint(self) -> str:
        """The checkpoint directory of the query."""
        return f"{self.root}/{CHECKPOINT}"

    def begun(self, query: str) -> JournalVersion:
        """Return the newest version, made if there is none, for a query to go on with.

        Raises `ConfigError` for a table of another query.
        """
        made = made_table(self.place, TABLE_SCHEMA, ["day"], _CONFIGURATION)
        version = JournalVersion(made)
        if version.batch(query) < 0 and version.files:
            raise ConfigError(
                f"{self.root}: expected the checkpoint that it was written with; got the one of"
                f" query {query}. {self._remedy}"
            )
        return version

    def lacks(self, version: JournalVersion, batch: int, namespace: str) -> bool:
        """Tell whether a batch is the next one of a version, which else has all of it.

        Raises `ConfigError` if it is neither. So it is with a checkpoint that was restored: batches
        of old numbers have new entries.
        """
        last = version.batch(self.query())
        is_next = batch > last
        planned = shard_numbers(namespace, self.offset(batch - 1 if is_next else batch))
        for name, until in planned.items():
            there = version.shard_number(name)
            if there is None:  # of an older version; Spark repeats no batch but the last
                follows = batch >= last
            else:
                follows = until == there if is_next else until <= there
            if not follows:
                raise ConfigError(
                    f"{self.root}: expected the checkpoint as it was at batch {last}, the last one"
                    f" of the table; got batch {batch} of another one, such as an older copy."
                    f" Nothing was added. {self._remedy}"
                )
        return is_next

    def existing(self) -> JournalVersion:
        """Return the newest version; raises `ConfigError` if there is none."""
        self.check_taken_over()
        return JournalVersion(opened_table(self.place, "a table that the job journal wrote"))

    def check_taken_over(self) -> None:
        """Raise `ConfigError` for a table as version 0.2.0 wrote it."""
        if self._files.get_file_info(f"{self._path}/{LANDED}").type is FileType.Directory:
            raise ConfigError(
                f"{self.root}: expected a Delta table; got one of duebridge 0.2.0, or a part of it."
                f" Take it over once: duebridge spark journal {self.root} --take-over"
            )

    def query(self) -> str:
        """Return the id of the query that owns the checkpoint."""
        return str(msgspec.json.decode(self._read(f"{CHECKPOINT}/metadata"))["id"])

    def offset(self, batch: int) -> dict[str, ShardOffset]:
        """Return how far the query is with a batch, for each shard; nowhere before the first.

        Raises `ConfigError` for a batch that the checkpoint does not have.
        """
        if batch < 0:
            return {}
        try:
            text = self._read(f"{CHECKPOINT}/offsets/{batch}").splitlines()[-1]
        except FileNotFoundError as error:
            raise ConfigError(
                f"{self.root}: expected a checkpoint that has batch {batch}; got another one, such"
                f" as an older copy. {self._remedy}"
            ) from error
        found = msgspec.json.decode(text, type=dict[str, list[Any]])
        return {name: ShardOffset.read(values) for name, values in found.items()}

    def _read(self, path: str) -> bytes:
        with self._files.open_input_stream(f"{self._path}/{path}") as stream:
            return bytes(stream.read())


def shard_numbers(namespace: str, offset: Mapping[str, ShardOffset]) -> dict[str, int]:
    """Return the last entry of each shard, by the names of their transactions."""
    return {
        _SHARD.format(namespace=namespace, name=name, epoch=each.epoch): each.until
        for name, each in offset.items()
    }


def _added(file: JournalFile) -> AddAction:
    day: dict[str, Any] = {"day": file.day}
    return AddAction(
        file.path, file.size_bytes, day, file.at_ms, data_change=True, stats=file.statistics
    )
