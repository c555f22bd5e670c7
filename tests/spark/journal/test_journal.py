"""The stream of the journal: every entry once, whatever is started again; a gap is said."""

from typing import Any
from unittest.mock import ANY

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from duebridge.errors import JobFailed, StoreError
from duebridge.ports.publisher import reason_word
from duebridge.store.journal import Journal
from duebridge.store.keys import Shard
from duebridge.store.registry import Registry
from duebridge.store.wire.journal_entry import EntryColumns, EntryHead
from duebridge_connectors.spark.rows.arrow import arrow_schema, record_batch
from duebridge_connectors.spark.rows.schema import JOURNAL
from duebridge_connectors.spark.source.journal.offset import JournalRange, Offset
from duebridge_connectors.spark.source.journal.reader import (
    JournalBatchReader,
    JournalStreamReader,
    _read,
    _Rows,
)
from duebridge_connectors.spark.source.options import JournalOptions
from duebridge_connectors.spark.source.planning import store_address
from tests.spark.by_hand import journal_by_hand, shipped
from tests.spark.world import World


class Query:
    """A query from the journal into Parquet, begun again from its checkpoint at each run."""

    def __init__(self, spark: SparkSession, world: World) -> None:
        self.spark = spark
        self.world = world
        self.sink = str(world.home / "sink")
        self.batches = 0

    def run(self, **options: Any) -> None:
        given = {"config": self.world.config} | options
        rows = self.spark.readStream.format("duebridge_journal").options(**given).load()
        writer = rows.writeStream.option("checkpointLocation", str(self.world.home / "checkpoint"))
        query = writer.trigger(availableNow=True).start(self.sink, "parquet")
        assert query.awaitTermination(240)
        self.batches = len([each for each in query.recentProgress if each["numInputRows"]])

    @property
    def rows(self) -> DataFrame:
        return self.spark.read.parquet(self.sink)


@pytest.fixture
def query(spark: SparkSession, world: World) -> Query:
    return Query(spark, world)


@pytest.mark.parametrize("at_ms", [9_000, 0])
def test_batch_of_entries_has_a_row_for_each_envelope_in_order(at_ms: int) -> None:
    first = EntryColumns(
        EntryHead(7, "dead", at_ms, 3, 40),
        ["a", "b", "c"],
        [5_000, 0, 7],
        [2, None, 1],
        [1, None, 250],
    )
    then = EntryColumns(EntryHead(8, "accepted", 9, 1, 40), ["d"], [8], [None], [None])
    schema = arrow_schema(JOURNAL)
    waiting = _Rows(schema, Shard("duebridge", "r", 3))
    assert [waiting.add(first), waiting.add(then)] == [3, 4]
    place = ("dead", at_ms, "r", 3, 7)
    rows = [
        (*place, 0, "a", 5_000, 2, reason_word(1), 0),
        (*place, 1, "b", 0, None, None, 0),
        (*place, 2, "c", 7, 1, "250", 0),
        ("accepted", 9, "r", 3, 8, 0, "d", 8, None, None, 0),
    ]
    assert waiting.taken().equals(record_batch(schema, rows))
    assert waiting.taken().equals(record_batch(schema, []))


def test_journal_from_a_checkpoint_goes_on_exactly_once(query: Query, world: World) -> None:
    first, then = ([f"{name}{number}" for number in range(10)] for name in "ab")
    world.accept("split", *first)
    query.run(maxEntriesPerTrigger=4)
    assert query.batches == 3
    world.accept("split", *then)
    world.accept("plain", "late")
    query.run()
    ids = sorted(row.id for row in query.rows.select("id").collect())
    assert ids == sorted([*first, *then, "late"])


def test_stream_with_the_columns_of_the_store_says_what_to_do(
    spark: SparkSession, world: World
) -> None:
    """Spark asks a format for its columns before it says that it streams."""
    of_store = spark.readStream.format("duebridge").option("config", world.config).load()
    started = of_store.writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match=r'format\("duebridge_journal"\)'):
        started.awaitTermination(240)
    named = spark.readStream.format("duebridge").options(config=world.config, stream="journal")
    assert named.load().columns[:3] == ["kind", "at", "route"]


def test_journal_of_a_batch_that_failed_is_written_once(query: Query, world: World) -> None:
    """The offsets of a batch stand in the checkpoint before it is read: it is planned as it was."""
    world.schedule("plain", *(f"i{n}" for n in range(2000)))
    world.use("redis://127.0.0.1:1/0")
    with pytest.raises(PySparkException):
        query.run(route="plain", storeDeadline="1ms")
    world.use(world.url)
    query.run(route="plain")
    assert query.rows.count() == query.rows.select("id").distinct().count() == 2000


def test_journal_cut_before_it_was_planned_is_a_gap(query: Query, world: World) -> None:
    world.accept("plain", *"abcdef")
    world.cut("plain", 1, 2)
    query.run(route="plain")
    world.accept("plain", *"ghij")
    world.cut("plain", 3, 4, 5, 6, 7)
    query.run(route="plain")
    rows = query.rows.orderBy("sequence").collect()
    gaps = [(row.sequence, row.lost_entries) for row in rows if row.kind == "gap"]
    assert gaps == [(1, 2), (7, 1)]
    assert [row.id for row in rows if row.id] == [*"cdefhij"]


def test_journal_cut_after_it_was_planned_fails_and_does_not_shrink(world: World) -> None:
    world.accept("plain", *"abc")
    world.cut("plain", 1)
    place = store_address(JournalOptions(store=world.url, namespace=world.namespace), None)
    planned = JournalRange(world.store("plain").shard, 0, 3, 0)
    with pytest.raises(JobFailed, match="1 after 0 were cut meanwhile"):
        list(_read(place, planned, "fail"))
    batches = list(_read(place, planned, "gap"))
    kinds = [row["kind"] for batch in batches for row in batch.to_pylist()]
    assert kinds == ["gap", "accepted", "accepted"]


def test_journal_of_ranges_has_what_its_tasks_would_read(world: World) -> None:
    world.accept("plain", *"abc")
    world.cut("plain", 1)
    reader = journal_by_hand(world, route="plain", content="ranges")
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert [(row["after"], row["until"], row["lost_entries"]) for row in rows] == [
        (0, 1, 1),
        (1, 3, 0),
    ]
    assert [JournalRange.of(row) for row in rows] == parts


def test_journal_that_went_back_is_refused(world: World) -> None:
    world.accept("plain", *"abc")
    reader = journal_by_hand(world, route="plain")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end == {"plain/0": [1, 3, ANY]}
    client: Any = world.connection.client
    client.delete(*world.store("plain").shard.keys())
    with pytest.raises(StoreError, match="the store was emptied"):
        reader.latestOffset(end, ReadAllAvailable())


@pytest.mark.parametrize("is_known", [True, False])
def test_journal_of_another_life_is_refused_however_long_it_is(
    world: World, is_known: bool
) -> None:
    """An offset of an older version does not know the life, and goes on by the number alone."""
    world.accept("plain", *"abc")
    reader, everything = journal_by_hand(world, route="plain"), ReadAllAvailable()
    start = reader.latestOffset(reader.initialOffset(), everything)
    if not is_known:
        start = {"plain/0": [1, 3]}
    Registry(world.connection, world.namespace).remove_route("plain", 1)
    world.accept("plain", *"defgh")
    if is_known:
        with pytest.raises(StoreError, match="got entry 5 of another life: the route was purged"):
            reader.latestOffset(start, everything)
    assert reader.latestOffset({} if is_known else start, everything) == {"plain/0": [1, 5, ANY]}


def test_journal_of_a_batch_that_was_planned_in_an_earlier_life_fails(world: World) -> None:
    """Spark reads it again after a restart, without a question for the latest offset."""
    world.accept("plain", *"abc")
    reader = journal_by_hand(world, route="plain")
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    Registry(world.connection, world.namespace).remove_route("plain", 1)
    world.accept("plain", *"defg")
    with pytest.raises(JobFailed, match="the route was purged meanwhile"):
        [batch for part in parts for batch in reader.read(part)]


def test_journal_to_an_end_that_a_failover_lost_ends_with_what_is_kept(world: World) -> None:
    world.accept("plain", *"abcde")
    reader, everything = journal_by_hand(world, route="plain"), ReadAllAvailable()
    reader.prepareForTriggerAvailableNow()
    world.fail_over("plain", 4, 5)
    world.accept("plain", "f")
    end, rows = read_on(reader, reader.initialOffset(), everything)
    assert [name for _, name, _ in rows] == [*"abc"]
    assert read_on(reader, end, everything) == (end, [])
    later = journal_by_hand(world, route="plain")
    assert read_on(later, end, everything)[1] == [("accepted", "f", 0)]


def test_journal_from_the_latest_begins_with_what_comes(world: World) -> None:
    world.accept("plain", "before")
    reader = journal_by_hand(world, route="plain", start="latest")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    world.accept("plain", "after")
    end = reader.latestOffset(start, ReadAllAvailable())
    (part,) = reader.partitions(start, end)
    assert [row["id"] for batch in reader.read(part) for row in batch.to_pylist()] == ["after"]


def test_journal_of_all_routes_goes_on_with_one_that_is_first_used_later(world: World) -> None:
    world.accept("plain", "a")
    reader = journal_by_hand(world)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    world.accept("split", "b")
    end = reader.latestOffset(start, ReadAllAvailable())
    rows = [
        row["id"]
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    assert rows == ["b"]


def test_journal_limit_is_shared_out_between_shards(world: World) -> None:
    world.accept("plain", *"abcdefgh")
    world.accept("open", "i", "j")
    reader = journal_by_hand(world, max_entries_per_trigger="6")
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first == {"open/0": [1, 2, ANY], "plain/0": [1, 4, ANY]}
    assert reader.latestOffset(first, limit) == {"open/0": [1, 2, ANY], "plain/0": [1, 8, ANY]}


def read_on(
    reader: JournalStreamReader, start: Offset, limit: ReadLimit
) -> tuple[Offset, list[tuple[str, Any, int]]]:
    """Read one batch: its end, and the kind, id and lost entries of its rows."""
    end = reader.latestOffset(start, limit)
    parts = shipped(reader.partitions(start, end))
    assert parts == reader.partitions(start, msgspec.json.decode(msgspec.json.encode(end)))
    assert len(parts) < 10, "a task for each thousand of the skipped numbers"
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return end, [(row["kind"], row["id"], row["lost_entries"]) for row in rows]


@pytest.mark.parametrize("most", [1, 2, 3, None])
def test_journal_over_a_failover_that_lost_nothing_has_no_gap(
    world: World, most: int | None
) -> None:
    world.accept("plain", *"ab")
    world.fail_over("plain")
    world.accept("plain", *"cd")
    world.fail_over("plain")
    world.accept("plain", "e")
    given = {} if most is None else {"max_entries_per_trigger": str(most)}
    reader = journal_by_hand(world, route="plain", **given)
    offset, found, batches = reader.initialOffset(), [], 0
    while (after := read_on(reader, offset, reader.getDefaultReadLimit()))[0] != offset:
        offset, rows = after
        found, batches = found + rows, batches + 1
    assert found == [("accepted", name, 0) for name in "abcde"]
    assert batches == (1 if most is None else -(-7 // most))  # renewals are entries, too
    (last,) = reader.reportLatestOffset().values()
    assert last == offset["plain/0"]


def test_journal_that_lost_what_was_read_waits_for_the_renewal_and_has_a_gap(world: World) -> None:
    world.accept("plain", *"abc")
    reader, everything = journal_by_hand(world, route="plain"), ReadAllAvailable()
    start, _ = read_on(reader, reader.initialOffset(), everything)
    behind: Offset = {"plain/0": [1, 1]}
    world.fail_over("plain", 2, 3)
    assert read_on(reader, start, everything) == (start, [])
    world.accept("plain", "d")
    end, rows = read_on(reader, start, everything)
    assert rows == [("gap", None, 2), ("accepted", "d", 0)]
    assert read_on(reader, behind, everything) == (end, [("accepted", "d", 0)])
    assert read_on(reader, end, everything) == (end, [])


def test_journal_that_is_renewed_while_its_end_is_read_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.accept("plain", *"abc")
    reader, everything = journal_by_hand(world, route="plain"), ReadAllAvailable()
    start, _ = read_on(reader, reader.initialOffset(), everything)
    world.fail_over("plain", 2, 3)
    asks = Journal.awaits_renewal

    def renewed_first(journal: Journal) -> bool:
        world.accept("plain", "d")
        return asks(journal)

    monkeypatch.setattr(Journal, "awaits_renewal", renewed_first)
    assert read_on(reader, start, everything)[1] == [("gap", None, 2), ("accepted", "d", 0)]


def rows_of(reader: Any, parts: list[JournalRange]) -> list[tuple[str, Any, int]]:
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return [(row["kind"], row["id"], row["lost_entries"]) for row in rows]


@pytest.mark.parametrize("is_renewed", [True, False], ids=["renewed", "not yet"])
def test_journal_that_lost_what_was_planned_has_its_gap_once(
    world: World, is_renewed: bool
) -> None:
    """The next batch has it, since that finds the same gap after what was read before the loss."""
    world.accept("plain", *"abcde")
    reader, everything = journal_by_hand(world, route="plain", on_trim="gap"), ReadAllAvailable()
    start = reader.initialOffset()
    end = reader.latestOffset(start, everything)
    world.cut("plain", 1)
    world.fail_over("plain", 4, 5)
    if is_renewed:
        world.accept("plain", "f")
    planned = reader.partitions(start, end)
    assert rows_of(reader, planned) == [
        ("gap", None, 1),
        ("accepted", "b", 0),
        ("accepted", "c", 0),
    ]
    world.accept("plain", "g")
    after, rows = read_on(reader, end, everything)
    last = [("accepted", name, 0) for name in ("fg" if is_renewed else "g")]
    assert rows == [("gap", None, 2), *last]
    assert read_on(reader, after, everything) == (after, [])


def test_journal_that_lost_what_was_planned_fails_unless_it_may_have_a_gap(world: World) -> None:
    world.accept("plain", *"abcde")
    reader, start = journal_by_hand(world, route="plain"), {}
    planned = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    world.fail_over("plain", 4, 5)
    with pytest.raises(JobFailed, match="2 after 3 were cut meanwhile"):
        rows_of(reader, planned)


def test_journal_as_a_table_that_lost_what_was_planned_has_the_gap_itself(world: World) -> None:
    world.accept("plain", *"abcde")
    options = JournalOptions(store=world.url, namespace=world.namespace, on_trim="gap")
    shards = [world.store("plain").shard]
    reader = JournalBatchReader(options, store_address(options, None), shards)
    planned = reader.partitions()
    world.fail_over("plain", 4, 5)
    world.accept("plain", "f")
    found = [("accepted", name, 0) for name in "abc"]
    assert sorted(rows_of(reader, planned)) == sorted([*found, ("gap", None, 2)])


def test_journal_cut_over_a_failover_counts_no_skipped_number(world: World) -> None:
    world.accept("plain", *"abc")
    world.fail_over("plain")
    world.accept("plain", *"de")
    client: Any = world.connection.client
    entries = client.xrange(world.store("plain").shard.key("journal"))
    world.cut("plain", *[int(number.removesuffix(b"-0")) for number, _ in entries[:5]])
    reader = journal_by_hand(world, route="plain")
    _, rows = read_on(reader, {"plain/0": [1, 1]}, ReadAllAvailable())
    assert rows == [("gap", None, 4), ("accepted", "e", 0)]


def test_journal_read_as_a_table_is_what_there_is(world: World) -> None:
    world.schedule("plain", "cut", at=5)
    world.schedule("plain", "a", at=5)
    world.cut("plain", 1)
    world.deliver("plain", 2)
    options = {"config": world.config, "stream": "journal"}
    rows = (
        world.spark.read.format("duebridge").options(**options).load().orderBy("sequence").collect()
    )
    assert [(row.kind, row.id, row.attempt, row.lost_entries) for row in rows] == [
        ("gap", None, None, 1),
        ("accepted", "a", None, 0),
        ("delivered", "cut", 1, 0),
        ("delivered", "a", 1, 0),
    ]
    assert all(row.at >= row.due_at for row in rows if row.id)
