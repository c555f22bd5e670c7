"""Intake of a real topic: everything once, whatever is killed, deleted or refused."""

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from bridge.errors import ConfigError
from bridge.publisher import BrokerUnavailable
from connectors.spark.jobs.intake import Intake, IntakeSummary, run_intake
from connectors.spark.session import job_error
from connectors.spark.topics import topic_of
from tests.acceptance.command import ENVIRONMENT, PROGRAM, Done
from tests.spark.conftest import LATER_MS, World
from tests.spark.test_rows import rejected
from tests.spark.topics import RECORDED_AT_MS, Record, Topics, opened_topics
from tests.store.servers import wait_until

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
    monkeypatch.setattr("connectors.spark.jobs.intake.topic_of", lambda *_: next(answers))
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
    with pytest.raises(ConfigError, match="route amqp: its target is on no Kafka"):
        run_intake(spark, Intake(topic=topic, checkpoint="x"), **world.options("amqp"))
    assert not (world.home / "checkpoint").exists()


def words(world: World, kafka_jars: str, topic: str, *more: str) -> list[str]:
    """The command as a person types it."""
    begin = [PROGRAM, "--config", world.config, "spark", "intake", "plain", topic]
    begin += ["--checkpoint", str(world.home / "checkpoint"), "--column", "delay='0ms'"]
    settings = ["--spark", f"spark.jars={kafka_jars}", "--spark", "spark.master=local[2]"]
    return [*begin, *settings, "--max-offsets-per-trigger", "4000", "--output", "json", *more]


@pytest.mark.timeout(300)  # it starts Spark twice
def test_intake_killed_in_the_middle_and_run_again_loses_nothing_and_repeats_nothing(
    spark: SparkSession, world: World, topics: Topics, kafka_jars: str
) -> None:
    topic, count = topics.make(), 10_000
    topics.fill(topic, (Record(b"%d" % number) for number in range(count)))
    slow = words(world, kafka_jars, topic, "--rows-per-second", "2000")
    with (world.home / "log").open("wb") as log:
        driver = subprocess.Popen(
            slow, stdout=log, stderr=log, env=ENVIRONMENT, start_new_session=True
        )
        wait_until(lambda: len(world.ids("plain")) >= 5_000, "half of them", within_s=90)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert len(world.ids("plain")) < count
    delivered = world.deliver("plain", 500)  # what is gone already is not scheduled again
    ran = subprocess.run(words(world, kafka_jars, topic), capture_output=True, env=ENVIRONMENT)
    done = Done(ran.returncode, ran.stdout.decode(), ran.stderr.decode())
    assert done.code == 0, done.err
    assert done.json()["rows"]["duplicate"] > 0
    left = world.ids("plain") | world.ids("plain", "ready")
    assert (len(left), len(delivered), left & delivered) == (count - 500, 500, set())
    journal = spark.read.format("duebridge").option("stream", "journal")
    accepted = journal.option("config", world.config).load().where("kind = 'accepted'")
    assert accepted.count() == accepted.select("id").distinct().count() == count


def test_run_the_command_without_a_broker_exits_4_in_one_line(
    world: World, kafka_jars: str
) -> None:
    world.use(world.url, "127.0.0.1:1")
    ran = subprocess.run(words(world, kafka_jars, "t"), capture_output=True, env=ENVIRONMENT)
    java_says = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
    said = ran.stderr.removeprefix(java_says)
    assert (ran.returncode, said.count(b"\n")) == (4, 1), said
    assert said.startswith(b"duebridge: topic t: ")
