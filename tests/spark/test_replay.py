"""Replay of a real dead-letter topic: counted first, then once each, and no loop."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from duebridge.envelope import Target
from duebridge.errors import ConfigError, EnvelopeError
from duebridge_connectors.spark.jobs.replay import LetterCount, Replay, ReplaySummary, run_replay
from duebridge_connectors.spark.source.loader import Summary
from tests.spark.commander import Commander
from tests.spark.conftest import World
from tests.spark.test_letters import letter
from tests.spark.test_rows import rejected
from tests.spark.topics import Record, Topics, opened_topics
from tests.support.command import ENVIRONMENT, PROGRAM
from tests.support.kafka_broker import KafkaBroker
from tests.support.servers import wait_until


@pytest.fixture
def topics(world: World, kafka_bootstrap: str) -> Iterator[Topics]:
    world.use(world.url, kafka_bootstrap)
    with opened_topics(kafka_bootstrap) as topics:
        yield topics


def dead(topics: Topics, *ids: str, route: str = "plain", **changed: bytes | None) -> list[Record]:
    given = {"x_dlq_route": route.encode(), "x_dlq_target": f"kafka:{route}".encode(), **changed}
    return [
        Record(b"body", b"k", tuple(letter(x_message_id=each.encode(), **given))) for each in ids
    ]


def replayed(spark: SparkSession, world: World, topic: str, **more: Any) -> ReplaySummary:
    options = {"rejects": more.pop("rejects")} if "rejects" in more else {}
    wanted = Replay(**{"topic": topic, "broker": "kafka", "delay": "1h", **more})
    return run_replay(spark, wanted, is_dry_run=False, config=world.config, **options)


def test_replay_schedules_to_each_route_once_and_leaves_what_it_may_not(
    spark: SparkSession, world: World, topics: Topics
) -> None:
    topic = topics.make()
    topics.fill(topic, dead(topics, "a", "b"))
    topics.fill(topic, dead(topics, "a"))  # as a shunt leaves that was killed after its publish
    topics.fill(topic, dead(topics, "c", route="split"))
    topics.fill(topic, dead(topics, "d", x_replays=b"3"))
    topics.fill(topic, [Record(b"damaged", None, (("x-dlq-route", b"plain"),))])
    first = replayed(spark, world, topic)
    assert [(each.route, each.accepted, each.duplicate) for each in first.rows] == [
        ("plain", 2, 1),
        ("split", 1, 0),
    ]
    assert not first.is_complete
    again = replayed(spark, world, topic)
    assert [(each.accepted, each.duplicate) for each in again.rows] == [(0, 3), (0, 1)]
    assert len(world.ids("plain")) == 2


def test_replay_of_what_was_delivered_meanwhile_changes_nothing(
    spark: SparkSession, world: World, topics: Topics
) -> None:
    topic = topics.make()
    topics.fill(topic, dead(topics, "a", "b"))
    assert replayed(spark, world, topic, delay="0s").rows[0].accepted == 2
    assert len(world.deliver("plain", 2)) == 2
    (again,) = replayed(spark, world, topic, delay="0s").rows
    assert (again.accepted, again.duplicate) == (0, 2)


def test_replay_by_reason_route_and_sql_repairs_what_is_meant(
    spark: SparkSession, world: World, topics: Topics
) -> None:
    topic = topics.make()
    topics.fill(topic, dead(topics, "a", "b"))
    topics.fill(topic, dead(topics, "c", x_dlq_reason=b"expired"))
    topics.fill(topic, dead(topics, "d", route="split"))
    chosen = {"reasons": ["too_large"], "routes": ["plain"], "where": "message_id > 'a'"}
    columns = {"body": "upper(cast(value as string))"}
    (rows,) = replayed(spark, world, topic, columns=columns, **chosen).rows
    assert rows.accepted == 1
    (row,) = spark.read.format("duebridge").options(**world.options("plain")).load().collect()
    headers = {each["name"]: bytes(each["value"]) for each in row["headers"]}
    assert bytes(row["body"]) == b"BODY"
    assert headers == {"mine": b"1", "x-replays": b"1", "x-replay-of": b"b"}


def test_replay_to_a_target_of_its_own_keeps_it_where_the_route_permits_it(
    spark: SparkSession, world: World, topics: Topics
) -> None:
    topic = topics.make()
    topics.fill(topic, dead(topics, "a", route="open"))
    topics.fill(topic, dead(topics, "b", route="open", x_dlq_target=b"kafka:open-b"))
    topics.fill(topic, dead(topics, "c", route="open", x_dlq_target=b"kafka:shut"))
    summary = replayed(spark, world, topic, rejects=str(world.home / "rejects"))
    assert (summary.rows[0].accepted, summary.rows[0].rejects) == (2, 1)
    rows = spark.read.format("duebridge").options(**world.options("open")).load().collect()
    assert {row["target"] and row["target"]["topic"] for row in rows} == {None, "open-b"}
    (row,) = rejected(world.home / "rejects")
    assert row["reject_reason"].startswith("target: expected one that allow_targets")


def test_replay_in_a_dry_run_counts_and_touches_nothing(
    spark: SparkSession, world: World, topics: Topics
) -> None:
    topic = topics.make()
    topics.fill(topic, dead(topics, "a", "b"))
    topics.fill(topic, dead(topics, "c", x_dlq_reason=b"expired", x_replays=b"9"))
    wanted = Replay(topic=topic, broker="kafka")
    summary = run_replay(spark, wanted, config=world.config)
    assert summary.letters == [
        LetterCount("plain", "too_large", "ready", 2),
        LetterCount("plain", "expired", "looped", 1),
    ]
    assert (summary.ready, summary.rows) == (2, [])
    client: Any = world.connection.client
    assert list(client.scan_iter(f"*{world.namespace}*", count=1000)) == []


def test_replay_of_what_cannot_be_is_refused(
    spark: SparkSession, world: World, topics: Topics
) -> None:
    topic = topics.make()
    with pytest.raises(EnvelopeError, match=r"reason: expected one of .*; got 'late'"):
        replayed(spark, world, topic, reasons=["late"])
    with pytest.raises(ConfigError, match=r"route: expected one of .*; got 'gone'"):
        replayed(spark, world, topic, routes=["gone"])
    with pytest.raises(ConfigError, match=r"column id: set by the job"):
        replayed(spark, world, topic, columns={"id": "'x'"})
    with pytest.raises(
        ConfigError, match=r"expected one broker whose routes name it as dead_letter"
    ):
        replayed(spark, world, topic, broker=None)
    topics.fill(topic, dead(topics, "a"))
    with pytest.raises(ConfigError, match=r"body: expected STRING or BINARY; got INT"):
        run_replay(
            spark, Replay(topic=topic, broker="kafka", columns={"body": "1"}), config=world.config
        )


def test_replay_of_what_kafka_cut_meanwhile_is_not_complete() -> None:
    counted = [LetterCount("plain", "expired", "ready", 3)]
    rows = [Summary(route="plain", accepted=2)]
    cut = ReplaySummary(topic="t", is_dry_run=False, letters=counted, rows=rows)
    assert (cut.gone, cut.is_complete) == (1, False)
    assert "gone" in str(cut)


CONFIG = """
version: 1
store: {{url: "{url}", namespace: {namespace}}}
brokers: {{kafka: {{type: kafka, bootstrap_servers: ["{bootstrap}"]}}}}
routes:
  due: {{target: {{broker: kafka, topic: {due}}}, dead_letter: {{broker: kafka, topic: {dead}}}}}
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_run_the_command_repairs_what_a_worker_had_shunted_and_a_worker_delivers_it(
    world: World, kafka_bootstrap: str, kafka_jars: str, command: Commander
) -> None:
    with closing(KafkaBroker(kafka_bootstrap)) as kafka:
        due, letters = kafka.missing_target(), kafka.missing_target()
        kafka.create(due, configs={"max.message.bytes": "800"})
        kafka.create(letters)
        names = {"due": due.topic, "dead": letters.topic, "namespace": world.namespace}
        text = CONFIG.format(url=world.url, bootstrap=kafka_bootstrap, **names)
        Path(world.config).write_text(text)
        send = ["send", "due", "x" * 2000, "--delay", "0s", "--id", "order-42"]
        assert command(world.config, *send).code == 0
        until_delivered(world, kafka, letters)
        job = ["spark", "replay", str(letters.topic), "--column", "body=substring(value, 1, 9)"]
        job += ["--spark", f"spark.jars={kafka_jars}", "--spark", "spark.master=local[2]"]
        dry = command(world.config, *job)
        assert (dry.code, dry.out.splitlines()[-1]) == (
            0,
            "would replay 1; nothing was changed; --yes does it",
        ), dry.err
        done = command(world.config, *job, "--yes", "--output", "json")
        assert (done.code, done.json()["rows"][0]["accepted"]) == (0, 1), done.err
        until_delivered(world, kafka, due)
        (record,) = kafka.records(due)
    assert record.value == b"x" * 9
    assert dict(record.headers)["x-replay-of"] == b"order-42"


def until_delivered(world: World, kafka: KafkaBroker, target: Target) -> None:
    """Let a worker run until the topic has a record."""
    with (world.home / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [PROGRAM, "--config", world.config, "run"], stdout=log, stderr=log, env=ENVIRONMENT
        )
        try:
            wait_until(lambda: bool(kafka.records(target)), f"a record in {target}", within_s=60)
        finally:
            worker.terminate()
            worker.wait()
