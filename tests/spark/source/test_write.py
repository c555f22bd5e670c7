"""The writer: no row lost, whatever fails; the same twice, or in a stream, is the same once."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.envelope import Target
from duebridge.errors import JobFailed
from duebridge.store.delay_store import DelayStore
from duebridge.store.server.connection import open_connection
from duebridge_connectors.spark import register
from duebridge_connectors.spark.failures import FAILURES, job_error
from duebridge_connectors.spark.listener import BatchFigures, FiguresListener
from tests.spark.source.test_rows import rejected
from tests.spark.world import LATER_MS, World, setting
from tests.support.network.proxy import proxied
from tests.support.servers import wait_until

SCHEMA = "id string, body string, due_at bigint"


def numbered(world: World, count: int, parts: int = 4) -> DataFrame:
    """So many envelopes, due in a month."""
    return world.spark.range(0, count, 1, parts).select(
        F.format_string("n-%06d", "id").alias("id"),
        F.concat(F.lit("body of "), F.col("id").cast("string")).alias("body"),
        (F.lit(LATER_MS) + F.col("id")).alias("due_at"),
    )


def fail_once_stored(store: DelayStore, name: str) -> None:
    wait_until(lambda: store.get(name), "the first row of the task")
    raise RuntimeError("planned by the test")


def failing_once(frame: DataFrame, world: World) -> DataFrame:
    """The same rows, but one in three tasks fails, once its first rows are in the store."""
    url, shard = world.url, world.store("plain").shard

    def rows(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        ids: list[str] = []
        is_failing = context.partitionId() % 3 == 0 and context.attemptNumber() == 0
        for number, batch in enumerate(batches):
            if is_failing and number == 4:
                fail_once_stored(DelayStore(open_connection(url), shard), ids[0])
            ids.append(batch.column("id")[1].as_py())  # every hundredth is refused
            yield batch

    return frame.mapInArrow(rows, frame.schema)


def test_write_without_register_stores_every_row(world: World) -> None:
    frame = numbered(world, 3000)
    frame.write.format("duebridge").options(**world.options("split")).mode("append").save()
    assert len(world.ids("split")) == 3000
    assert world.due("split", "n-000007") == LATER_MS + 7


def test_write_in_another_mode_is_refused_and_the_message_comes_first(world: World) -> None:
    """Spark itself refuses its default mode for every Python source, before any call of ours."""
    writer = numbered(world, 3).write.format("duebridge").options(**world.options("plain"))
    with pytest.raises(PySparkException, match='Please use either the "Append"'):
        writer.save()
    with pytest.raises(PySparkException) as refused:
        writer.mode("overwrite").save()
    first, second, *_ = str(refused.value).splitlines()
    assert first.endswith('writer: duebridge.errors.ConfigError: expected mode("append"): nothing'
                          " takes back what is scheduled")  # fmt: skip
    assert second == "Traceback (most recent call last):"
    assert str(job_error(refused.value)).startswith('expected mode("append")')
    assert world.ids("plain") == set()


def test_write_of_a_damaged_file_names_the_file(world: World) -> None:
    damaged = world.home / "damaged.parquet"
    damaged.write_bytes(b"PAR1, and no more")
    with pytest.raises(FAILURES) as caught:
        world.write(world.spark.read.schema(SCHEMA).parquet(str(damaged)), "plain")
    said = str(job_error(caught.value))
    assert "damaged.parquet is not a Parquet file" in said
    assert "\n" not in said


def test_write_after_a_task_of_python_failed_names_the_cause(world: World) -> None:
    def fail(_: Any) -> Any:
        raise OSError("/data/orders.parquet: no such file")

    frame = numbered(world, 3)
    with pytest.raises(PySparkException) as caught:
        world.write(frame.mapInArrow(fail, frame.schema), "plain")
    assert "/data/orders.parquet: no such file" in str(job_error(caught.value))


def test_write_of_every_column_is_what_a_producer_stores(world: World) -> None:
    at = datetime.fromtimestamp(LATER_MS / 1000, UTC)
    frame = world.spark.createDataFrame(
        [("a", b"x", at, b"k", {"n": b"v"}, "400d", 3, "1d", ("kafka", "open-1"), "text/plain")],
        "id string, body binary, due_at timestamp, key binary, headers map<string, binary>,"
        " expires string, max_attempts int, remember string,"
        " target struct<broker: string, topic: string>, content_type string",
    )
    assert world.write(frame, "open").accepted == 1
    receipt = world.producer().schedule(
        "open", b"x", id="a", at=at, key=b"k", headers={"n": b"v"}, expires="400d", max_attempts=3,
        remember="1d", target=Target("kafka", topic="open-1"), content_type="text/plain",
    )  # fmt: skip
    assert receipt.status == "duplicate", "the content hash is the same"


def test_write_beyond_max_rejects_fails_and_keeps_them(world: World) -> None:
    rejects = world.home / "rejects"
    frame = world.spark.createDataFrame([(f"i{n}", None, LATER_MS) for n in range(9)], SCHEMA)
    with pytest.raises(PySparkException) as caught:
        world.write(frame, "plain", rejects=str(rejects), max_rejects=3)
    error = job_error(caught.value)
    assert isinstance(error, JobFailed)
    said = "route plain: expected at most 3 rows refused (maxRejects); got 9"
    assert str(error).startswith(said)
    assert len(rejected(rejects)) == 9


def test_write_replaces_the_rejects_of_its_run_and_of_no_longer_name(world: World) -> None:
    rejects, summary = world.home / "rejects", (world.home / "counts.json").as_uri()
    for run, count in (("night", 3), ("night-eu", 2), ("night-batch", 1), ("night", 4)):
        frame = world.spark.createDataFrame([(run, None, LATER_MS)] * count, SCHEMA)
        done = world.write(frame, "plain", rejects=str(rejects), run=run, summary=summary)
        assert done.refused == count, "the counts are read from a URI"
    found = sorted(row.id for row in world.spark.read.parquet(str(rejects)).collect())
    assert found == ["night"] * 4 + ["night-batch"] + ["night-eu"] * 2


def test_write_again_after_a_part_was_delivered_changes_nothing(world: World) -> None:
    rows = [(f"i{n}", "x", 5 if n < 30 else LATER_MS) for n in range(100)]
    frame = world.spark.createDataFrame(rows, SCHEMA)
    assert world.write(frame, "plain").accepted == 100
    delivered = world.deliver("plain", 100)
    assert delivered == {f"i{n}" for n in range(30)}
    assert world.producer().cancel("plain", "i40") == "cancelled"
    for how in ("refuse", "replace"):
        again = world.write(frame, "plain", on_conflict=how)
        assert (again.duplicate, again.cancelled, again.rejects, again.rows) == (99, 1, 0, 100)
    assert world.ids("plain") == {f"i{n}" for n in range(30, 100)} - {"i40"}


@pytest.mark.parametrize(
    ("how", "later_by_ms", "counts"), [("replace", 1, (2, 1, 0)), ("refuse", 9, (2, 0, 1))]
)
def test_write_of_an_id_that_is_there_twice_takes_the_rows_in_their_order(
    world: World, how: str, later_by_ms: int, counts: tuple[int, int, int]
) -> None:
    rows = [("a", "first", LATER_MS + 9), ("b", "other", LATER_MS), ("a", "last", LATER_MS + 1)]
    frame = world.spark.createDataFrame(rows, SCHEMA).coalesce(1)
    done = world.write(frame, "plain", on_conflict=how)
    assert (done.accepted, done.replaced, done.conflict) == counts
    assert world.due("plain", "a") == LATER_MS + later_by_ms


def test_write_with_tasks_that_fail_counts_every_row_once(world: World) -> None:
    rejects = world.home / "rejects"
    frame = numbered(world, 30_000, parts=6)
    bad = F.when(F.col("due_at") % 100 == 0, F.lit("x" * 2000)).otherwise(F.lit("x" * 400))
    frame = failing_once(frame.withColumn("body", bad), world)
    with setting(world.spark, "spark.sql.execution.arrow.maxRecordsPerBatch", "1000"):
        summary = world.write(frame, "plain", rejects=str(rejects))
    assert (summary.rows, summary.refused) == (30_000, 300)
    assert summary.duplicate > 0, "tasks failed after they had stored something"
    assert len(rejected(rejects)) == 300
    assert len(world.ids("plain")) == 29_700


def test_write_while_the_store_goes_away_loses_nothing(world: World, service: Any) -> None:
    with proxied(int(service("redis", "port"))) as proxy:
        world.use(f"redis://127.0.0.1:{proxy.port}/0")
        proxy.lose_reply_to(b"n-005000", then_refuse=6)
        summary = world.write(numbered(world, 10_000), "plain", rows_per_second=5000)
        assert (proxy.lost, proxy.refused) == (1, 6)
    assert (summary.rows, summary.accepted + summary.duplicate) == (10_000, 10_000)
    assert len(world.ids("plain")) == 10_000


def test_options_that_are_wrong_are_refused_by_spark_and_a_password_is_never_shown(
    world: World,
) -> None:
    options = world.options("plain", store="redis://:hunter2@127.0.0.1:1/0")
    frame = numbered(world, 1).write.format("duebridge").options(**options).mode("append")
    with pytest.raises(PySparkException, match=r"expected its password as \$\{VAR\}") as refused:
        frame.save()
    assert "hunter2" not in str(refused.value)
    with pytest.raises(PySparkException, match="option states: unknown, did you mean state"):
        world.read(states="dead")


def test_write_and_read_in_a_thread_of_its_own_know_the_format(world: World) -> None:
    frame = world.spark.createDataFrame([("a", "b", LATER_MS)], SCHEMA)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(world.write, frame, "plain").result().accepted == 1
    with ThreadPoolExecutor(1) as thread:
        thread.submit(register, world.spark).result()
        assert thread.submit(lambda: world.read().count()).result() == 1


class Feed:
    """A query of files that it takes up, one a micro-batch."""

    def __init__(self, world: World) -> None:
        self.spark = world.spark
        self.source, self.rejects, self.summary, self.checkpoint = (
            world.home / name for name in ("feed", "rejects", "summary", "checkpoint")
        )
        self.source.mkdir()
        self.options = world.options("plain", rejects=self.rejects, summary=self.summary)

    def add(self, bad: str, *ids: str) -> None:
        rows = [{"id": name, "body": "x", "due_at": LATER_MS} for name in ids]
        lines = map(json.dumps, [*rows, {"id": bad, "due_at": LATER_MS}])
        (self.source / f"{bad}.json").write_text("\n".join(lines))

    def run(self) -> None:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        writer = reader.json(str(self.source)).writeStream.format("duebridge")
        writer.options(**self.options).option("checkpointLocation", str(self.checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(240)

    def forget_last_commit(self) -> None:
        """Leave the checkpoint as a driver does that dies between write and commit."""
        last = max(self.checkpoint.glob("commits/[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)

    def counts(self) -> list[tuple[int, int, int]]:
        found = [json.loads(path.read_text()) for path in sorted(self.summary.iterdir())]
        return [(done["accepted"], done["duplicate"], done["refused"]) for done in found]


def test_stream_of_a_batch_that_runs_again_stores_and_rejects_once(world: World) -> None:
    feed = Feed(world)
    feed.add("one", "a", "b")
    found: list[BatchFigures] = []
    listener = FiguresListener(found.append, str(feed.summary))
    world.spark.streams.addListener(listener)
    try:
        feed.run()
        wait_until(lambda: found, "the figures of the batch")
    finally:
        world.spark.streams.removeListener(listener)
    assert [(each.batch, each.rows, each.rejects) for each in found] == [(0, 3, 1)]
    assert feed.counts() == [(2, 0, 1)]
    feed.forget_last_commit()
    feed.add("two", "c")
    feed.run()
    assert feed.counts() == [(0, 2, 1), (1, 0, 1)]
    assert world.ids("plain") == {"a", "b", "c"}
    assert sorted(row["id"] for row in rejected(feed.rejects)) == ["one", "two"]
