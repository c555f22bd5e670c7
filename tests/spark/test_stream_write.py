"""The streaming writer: a micro-batch is a write; what is run again is the same once."""

import json
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.conftest import LATER_MS, World
from tests.spark.test_rows import rejected

COLUMNS = "id string, body string, due_at bigint"


class Feed:
    """Files that a query takes up, one a micro-batch."""

    def __init__(self, spark: SparkSession, world: World) -> None:
        self.spark = spark
        self.world = world
        self.source = world.home / "feed"
        self.source.mkdir()
        self.rejects = world.home / "rejects"
        self.summary = world.home / "summary"

    def add(self, name: str, *ids: str) -> None:
        rows = [{"id": each, "body": "x", "due_at": LATER_MS} for each in ids]
        text = "".join(f"{json.dumps(row)}\n" for row in [*rows, {"id": name, "due_at": LATER_MS}])
        (self.source / f"{name}.json").write_text(text)

    def run(self) -> None:
        options = self.world.options("plain", rejects=self.rejects, summary=self.summary)
        query = (
            self.spark.readStream.schema(COLUMNS)
            .option("maxFilesPerTrigger", 1)
            .json(str(self.source))
            .writeStream.format("duebridge")
            .options(**options)
            .option("checkpointLocation", str(self.world.home / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    def forget_last_commit(self) -> None:
        """Leave the checkpoint as a driver does that dies between write and commit."""
        commits = Path(self.world.home / "checkpoint" / "commits")
        last = max(
            (each for each in commits.iterdir() if each.name.isdigit()), key=lambda p: p.name
        )
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)

    def counts(self) -> list[tuple[int, int, int]]:
        found = [json.loads(each.read_text()) for each in sorted(self.summary.iterdir())]
        return [(each["accepted"], each["duplicate"], each["refused"]) for each in found]


def test_stream_of_a_batch_that_runs_again_stores_and_rejects_once(
    spark: SparkSession, world: World
) -> None:
    feed = Feed(spark, world)
    feed.add("one", "a", "b")
    feed.run()
    assert feed.counts() == [(2, 0, 1)]
    feed.forget_last_commit()
    feed.add("two", "c")
    feed.run()
    assert feed.counts() == [(0, 2, 1), (1, 0, 1)]
    assert world.ids("plain") == {"a", "b", "c"}
    assert sorted(row["id"] for row in rejected(feed.rejects)) == ["one", "two"]
