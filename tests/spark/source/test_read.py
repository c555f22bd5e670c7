"""The batch reader: every row of a store, once, by shard and state."""

from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, In
from redis import Redis

from duebridge.errors import ConfigError
from duebridge.ports.publisher import Reason
from duebridge.store.delay_store import DelayStore
from duebridge.store.wire.transitions import Burial, Retry
from duebridge_connectors.spark.source.planning import plan_read
from duebridge_connectors.spark.source.slices import StoreSlice
from duebridge_connectors.spark.source.store_reader import FilteringReader, StoreReader
from tests.spark.by_hand import read_by_hand
from tests.spark.world import LATER_MS, World, setting
from tests.support.servers import redis_server


def numbered(count: int) -> list[str]:
    return [f"i{number}" for number in range(count)]


def reader_of(world: World, **options: Any) -> StoreReader:
    given = {name: str(value) for name, value in options.items()}
    return StoreReader(*plan_read({"config": world.config, **given}))


def ids_of(reader: StoreReader, part: StoreSlice) -> list[str]:
    return [name for batch in reader.read(part) for name in batch.column("id").to_pylist()]


def sliced(world: World, **options: Any) -> list[list[str]]:
    """The ids that each task reads."""
    reader = reader_of(world, **options)
    return [ids_of(reader, part) for part in reader.partitions()]


def stored(world: World, name: str) -> tuple[int, bytes, bytes]:
    """What a way back must keep of an envelope."""
    _, record = world.record("plain", name)
    return record.due_at_ms, record.blob, record.content_hash


def test_read_of_a_split_route_has_every_row_once_by_shard(world: World) -> None:
    world.schedule("split", *numbered(2500))
    frame = world.read(route="split", state="pending", page=100)
    assert frame.rdd.getNumPartitions() == 4
    rows = frame.select("id", "shard").collect()
    assert sorted(row.id for row in rows) == sorted(numbered(2500))
    assert {row.shard for row in rows} == {0, 1, 2, 3}
    assert "redis://" not in frame._jdf.queryExecution().toString()  # type: ignore[operator]


def test_read_of_one_shard_is_divided_though_all_are_due_at_once(world: World) -> None:
    world.schedule("plain", *numbered(2500))
    slices = sliced(world, route="plain", state="pending", minPartitions=8, page=100)
    assert len(slices) == 8
    assert {len(rows) for rows in slices} <= {312, 313, *range(300, 313)}
    assert sorted(chain(*slices)) == sorted(numbered(2500))


def test_read_of_slices_whose_ends_have_gone_has_every_other_row_once(world: World) -> None:
    world.schedule("plain", *numbered(900))
    reader = reader_of(world, route="plain", state="pending", minPartitions=4, page=50)
    parts = reader.partitions()
    gone = {span.until[0] for part in parts for span in part.spans if span.until}
    assert len(gone) == 3
    for name in gone:
        assert world.producer().cancel("plain", name) == "cancelled"
    assert sorted(chain(*(ids_of(reader, part) for part in parts))) == sorted(
        set(numbered(900)) - gone
    )


def test_read_of_rows_that_go_while_a_page_is_read_gives_the_others_once(world: World) -> None:
    """The last row of a page is the cursor of the next."""
    world.schedule("plain", *numbered(300))
    reader = reader_of(world, route="plain", state="pending", page=100)
    (part,) = reader.partitions()
    found: list[str] = []
    for batch in reader.read(part):
        found += batch.column("id").to_pylist()
        world.producer().cancel("plain", found[-1])
    assert sorted(found) == sorted(numbered(300))


def test_read_with_filters_asks_the_store_only_for_what_they_leave(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.schedule("plain", "a", at=LATER_MS)
    world.schedule("plain", "b", at=LATER_MS + 5000)
    world.schedule("split", *numbered(40))
    asked: list[tuple[Any, ...]] = []
    listed = DelayStore.list

    def list_page(store: DelayStore, state: str, **given: Any) -> Any:
        asked.append((store.shard.route, state, given["due_from_ms"]))
        return listed(store, state, **given)

    monkeypatch.setattr(DelayStore, "list", list_page)
    reader = FilteringReader(*plan_read({"config": world.config}))
    at = datetime.fromtimestamp(LATER_MS / 1000 + 1, UTC)
    due = GreaterThan(("due_at",), at)
    filters = [EqualTo(("route",), "plain"), In(("state",), ("pending", "dead")), due]
    assert list(reader.pushFilters(filters)) == [due]
    (part,) = reader.partitions()
    assert ids_of(reader, part) == ["b"]
    after_ms = int(at.timestamp() * 1000)
    assert asked[0] == ("plain", "pending", after_ms)
    assert {call[:2] for call in asked} == {("plain", "pending"), ("plain", "dead")}


def test_query_with_a_filter_reads_only_the_shards_of_its_route(world: World) -> None:
    world.schedule("plain", "a")
    world.schedule("split", *numbered(40))
    plain = "route = 'plain' AND state IN ('pending', 'dead')"
    whole = world.read()
    found = whole.where(plain).collect()  # Spark's default: it takes all rows and filters them
    with setting(world.spark, "spark.sql.python.filterPushdown.enabled", "true"):
        few = world.read().where(plain)
        assert (whole.rdd.getNumPartitions(), few.rdd.getNumPartitions()) == (5, 1)
        assert few.collect() == found
        assert world.read().where("route = 'nowhere'").collect() == []
        assert [row.id for row in found] == ["a"]


def test_describe_of_a_view_explains_every_column(world: World) -> None:
    formats = {"duebridge": {}, "duebridge_journal": {}, "packed": {"content": "packed"}}
    for name, options in formats.items():
        reader = world.spark.read.format(name.replace("packed", "duebridge"))
        reader.options(config=world.config, **options).load().createOrReplaceTempView("described")
        rows = world.spark.sql("DESCRIBE described").collect()
        assert [row.col_name for row in rows if not row.comment] == []


def test_read_with_many_tasks_has_a_connection_for_each_worker(
    spark: SparkSession, tmp_path: Path
) -> None:
    with redis_server(tmp_path, "--appendonly", "yes") as port, Redis(port=port) as client:
        world = World(tmp_path, f"redis://127.0.0.1:{port}/0", lambda: spark)
        world.schedule("plain", *numbered(1000))
        options = {"route": "plain", "state": "pending", "minPartitions": 8}
        before: Any = client.info("stats")
        assert world.read(**options).count() == 1000
        names = [each["name"] for each in client.client_list()]
        opened: Any = client.info("stats")["total_connections_received"]
        assert 1 <= names.count("duebridge") <= 2 + 1, "the two workers, and the test itself"
        assert opened - before["total_connections_received"] <= 2 + 3, "and those of the planning"


def test_tasks_of_one_process_share_a_connection_unless_there_is_a_ceiling(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--appendonly", "yes") as port, Redis(port=port) as client:
        world = World(tmp_path, f"redis://127.0.0.1:{port}/0", pytest.fail)
        world.schedule("plain", *numbered(100))
        world.connection.close()

        def opened() -> list[str]:
            return [each["name"] for each in client.client_list() if each["name"] == "duebridge"]

        sliced(world, minPartitions=5, maxConnections=3)
        assert opened() == [], "each task has closed its own"
        sliced(world, minPartitions=5)
        assert len(opened()) == 1
        sliced(world, minPartitions=5)
        assert len(opened()) == 1


def test_write_of_more_partitions_than_connections_is_refused_before_it_connects(
    world: World,
) -> None:
    frame = world.spark.range(0, 40, 1, 4).selectExpr(
        "cast(id AS string) AS id", "'x' AS body", f"{LATER_MS} AS due_at"
    )
    assert world.write(frame, "plain", max_connections=2).accepted == 40
    writer = frame.write.format("duebridge").options(**world.options("plain", maxConnections=2))
    with pytest.raises(PySparkException, match=r"at most 2 partitions.*frame\.coalesce\(2\)"):
        writer.mode("append").save()


def test_read_has_no_more_tasks_than_connections(world: World) -> None:
    world.schedule("split", *numbered(400))
    slices = sliced(world, route="split", minPartitions=9, maxConnections=2)
    assert len(slices) == 2
    assert sorted(chain(*slices)) == sorted(numbered(400))


def test_read_of_an_envelope_has_all_that_it_was_given(world: World) -> None:
    headers = [("n", "text"), ("n", 5), ("m", None), ("t", True)]
    world.schedule("plain", "a", key=b"k", headers=headers, content_type="text/plain",
                   max_attempts=4, remember="1d")  # fmt: skip
    (row,) = world.read(route="plain").collect()
    assert (row.id, row.route, row.shard, row.state) == ("a", "plain", 0, "pending")
    assert row.due_at.replace(tzinfo=UTC) == datetime.fromtimestamp(LATER_MS / 1000, UTC)
    assert row.waits_for == row.due_at
    assert (bytes(row.body), bytes(row.key), row.max_attempts) == (b"body of a", b"k", 4)
    values = [(name, value and bytes(value)) for name, value in row.headers]
    assert values == [("n", b"text"), ("n", b"5"), ("m", None), ("t", b"true")]
    assert row.properties == {"content_type": "text/plain"}
    assert (row.remember_ms, row.attempt, row.expires_at, row.reason) == (86_400_000, 0, None, None)
    assert row.generation > 0


def test_read_of_every_state_names_it(world: World) -> None:
    world.schedule("plain", *numbered(5), at=5)
    world.schedule("split", "other")
    store = world.store("plain")
    store.promote()
    claim = store.claim(3, 30_000)
    retried, dead = claim.ids[:2]
    why: dict[str, Any] = {"is_failure": True, "is_unsure": False, "error": "E\nrefused"}
    store.retry(claim.token, [Retry(id=retried, delay_ms=60_000, **why)])
    store.bury(claim.token, [Burial(id=dead, reason=Reason.TOO_LARGE, **why)])
    rows = {row.id: row for row in world.read().collect()}
    states = sorted(row.state for row in rows.values())
    assert states == ["dead", "pending", "ready", "ready", "retry", "unack"]
    found = rows[retried]
    assert (found.failures, found.error_class, found.error_message) == (1, "E", "refused")
    assert (rows[dead].reason, rows[dead].waits_for) == ("too_large", None)
    ready = read_by_hand(world, route="plain,split", state="ready, retry")
    assert sorted(row["state"] for row in ready) == ["ready", "ready", "retry"]


def test_read_of_a_due_window_ends_before_its_end(world: World) -> None:
    for number in range(10):
        world.schedule("plain", f"w{number}", at=LATER_MS + number * 1000)
    after = datetime.fromtimestamp(LATER_MS / 1000 + 2, UTC).isoformat()
    rows = read_by_hand(world, dueAfter=after, dueBefore=LATER_MS + 5000)
    assert {row["id"] for row in rows} == {"w2", "w3", "w4"}


def test_read_packed_goes_back_as_it_was(world: World) -> None:
    world.schedule("plain", *numbered(20), delay="30d", headers={"n": b"v"})
    packed = world.read(route="plain", content="packed")
    kept = packed.drop("route", "shard", "state", "scheduled_at").localCheckpoint()
    before = {name: stored(world, name) for name in world.ids("plain")}
    for name in before:
        assert world.producer().cancel("plain", name) == "cancelled"
    assert world.write(kept, "plain").accepted == 20
    assert {name: stored(world, name) for name in before} == before


def test_read_of_a_damaged_record_says_so_and_goes_on(world: World) -> None:
    world.schedule("plain", "i0", "i1")
    client: Any = world.connection.client
    client.hset(f"{world.store('plain').shard.tag}:envelopes", "i1", b"\x01short")
    rows = {row["id"]: row for row in read_by_hand(world, route="plain")}
    assert rows["i0"]["error_message"] == ""
    assert (rows["i1"]["error_class"], rows["i1"]["body"]) == ("RecordDamaged", None)


def test_read_without_a_configuration_asks_the_store(world: World) -> None:
    world.schedule("split", *numbered(10))
    assert len(read_by_hand(world, store=world.url, namespace=world.namespace)) == 10


WRONG = [
    ({"states": "dead"}, "option states: unknown, did you mean state"),
    ({"minPartitions": "0"}, "option minPartitions: expected a whole number, 1 to 10000"),
    ({"state": "gone"}, "option state: expected some of pending"),
    ({"dueBefore": "2030-01-01T00:00:00"}, "dueBefore: expected RFC 3339 with an offset"),
    ({"route": "nowhere"}, "expected routes of the store"),
    ({"store": "redis://:hunter2@localhost"}, "expected its password as"),
]


@pytest.mark.parametrize(("options", "expected"), WRONG)
def test_read_of_wrong_options_names_them(
    world: World, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected) as refused:
        plan_read({"config": world.config, **options})
    assert "hunter2" not in str(refused.value)
