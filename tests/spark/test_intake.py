"""Intake of a real topic: everything once, whatever is killed, deleted or refused."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from duebridge.errors import ConfigError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.spark.jobs.intake import Intake, IntakeSummary, run_intake
from duebridge_connectors.spark.kafka_source import topic_of
from duebridge_connectors.spark.session import job_error
from tests.spark.commander import JAVA_SAYS, Commander
from tests.spark.conftest import LATER_MS, World
from tests.spark.test_rows import rejected
from tests.spark.topics import RECORDED_AT_MS, Record, Topics, opened_topics

DUE = {"due_at": str(LATER_MS)}


@pytest.fixture
def topics(world: World, kafka_bootstrap: str) -> Iterator[Topics]:
    world.use(world.url, kafka_bootstrap)
    with opened_topics(kafka_bootstrap) as topics:
        yield topics


def take_in(spark: SparkSession, world: World, topic: str, **more: Any) -> IntakeSummary:
    """Take in what there is, as somebody does who runs it again and again."""
    rejects = {"rejects": more.pop("rejects")} if "rejects" in more else {}
    fields = {"columns": DUE, "checkpoint": str(world.home / "checkpoint"), **more}
    return run_intake(spark, Intake(topic=topic, **fields), **world.options("plain", **rejects))


def counts(summary: IntakeSummary) -> tuple[int, int, int]:
    return summary.rows.accepted, summary.rows.duplicate, summary.rows.rejects


def id_of(spark: SparkSession, topics: Topics, topic: str) -> str:
    return topic_of(spark, {"kafka.bootstrap.servers": topics.bootstrap}, topic).id


def test_intake_takes_each_record_once_with_key_headers_and_delay(
    spark: SparkSession, world: World, topics: Topics
) -> None:
    topic = topics.make()
    late_s = LATER_MS // 1000 - RECORDED_AT_MS // 1000
    headers = (("x-delay", f"{late_s}s".encode()), ("a", b"1"), ("a", b"2"))
    topics.fill(topic, [Record(b"one", b"k", headers, partition=1)])
    first = take_in(spark, world, topic, columns={}, delay_header="x-delay")
    assert counts(first) == (1, 0, 0)
    topic_id = id_of(spark, topics, topic)
    (row,) = spark.read.format("duebridge").options(**world.options("plain")).load().collect()
    assert (row["id"], row["body"], row["key"]) == (f"{topic_id}:1:0", b"one", b"k")
    assert tuple((each["name"], bytes(each["value"])) for each in row["headers"]) == headers
    assert row["due_at"].timestamp() == LATER_MS // 1000
    topics.fill(topic, [Record(b"two", None, headers, partition=1)])
    assert counts(take_in(spark, world, topic, columns={}, delay_header="x-delay")) == (1, 0, 0)
    assert world.ids("plain") == {f"{topic_id}:1:0", f"{topic_id}:1:1"}


def test_intake_in_bounded_batches_rejects_what_is_no_envelope(
    spark: SparkSession, world: World, topics: Topics
) -> None:
    topic = topics.make(partitions=1)
    topics.fill(topic, [Record(b"x"), Record(b"y" * 2000), Record(b"z")])
    summary = take_in(spark, world, topic, max_offsets=2, rejects=world.home / "rejects")
    assert (counts(summary), summary.batches) == ((2, 0, 1), 2)
    (row,) = rejected(world.home / "rejects")
    assert row["reject_reason"] == "body: expected at most 1024 bytes; got 2000"
    assert take_in(spark, world, topic).batches == 0


def test_intake_of_a_topic_made_anew_reads_it_from_its_beginning_under_other_ids(
    spark: SparkSession, world: World, topics: Topics
) -> None:
    topic = topics.make(partitions=1)
    topics.fill(topic, [Record(b"x")] * 3)
    assert counts(take_in(spark, world, topic)) == (3, 0, 0)
    topics.make_anew(topic, partitions=1)
    topics.fill(topic, [Record(b"x")] * 5)
    again = take_in(spark, world, topic, start="latest")
    assert (counts(again), again.is_made_anew) == ((5, 0, 0), True)
    assert len(world.ids("plain")) == 8


def test_intake_while_its_topic_is_made_anew_fails_and_then_goes_on(
    spark: SparkSession, world: World, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.make(partitions=1)
    topics.fill(topic, [Record(b"x")] * 3)
    asked = topic_of(spark, {"kafka.bootstrap.servers": topics.bootstrap}, topic)
    answers = iter([asked, asked, asked._replace(id="another")])
    monkeypatch.setattr("duebridge_connectors.spark.jobs.intake.topic_of", lambda *_: next(answers))
    with pytest.raises(StreamingQueryException) as caught:
        take_in(spark, world, topic)
    said = str(job_error(caught.value))
    assert said.startswith(f"topic {topic}: expected the one with id {asked.id}; got a new one")
    monkeypatch.undo()
    assert counts(take_in(spark, world, topic)) == (0, 3, 0)  # its offsets had not counted as read


def test_intake_without_what_it_needs_says_so_before_a_record_is_read(
    spark: SparkSession, world: World, topics: Topics
) -> None:
    with pytest.raises(BrokerUnavailable, match="topic nowhere: "):
        take_in(spark, world, "nowhere")
    topic = topics.make()
    with pytest.raises(ConfigError, match="due_at: missing"):
        take_in(spark, world, topic, columns={})
    with pytest.raises(ConfigError, match="due_at: expected either a header or a column"):
        take_in(spark, world, topic, due_header="x-due")
    with pytest.raises(ConfigError, match="start: expected one of earliest, latest; got 'now'"):
        take_in(spark, world, topic, start="now")
    with pytest.raises(ConfigError, match="route amqp: its target is not on Kafka"):
        run_intake(spark, Intake(topic=topic, checkpoint="x"), **world.options("amqp"))
    assert not (world.home / "checkpoint").exists()


@pytest.mark.long
def test_run_the_command_without_a_broker_exits_4_in_one_line(
    world: World, kafka_jars: str, command: Commander
) -> None:
    world.use(world.url, "127.0.0.1:1")
    done = command(world.config, *words(world, kafka_jars, "t"))
    said = done.err.removeprefix(JAVA_SAYS)
    assert (done.code, said.count("\n")) == (4, 1), said
    assert said.startswith("duebridge: topic t: ")


def words(world: World, kafka_jars: str, topic: str) -> list[str]:
    begin = ["spark", "intake", "plain", topic]
    begin += ["--checkpoint", str(world.home / "checkpoint"), "--column", "delay='1h'"]
    return [*begin, "--spark", f"spark.jars={kafka_jars}", "--output", "json"]
