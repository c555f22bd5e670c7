"""Intake of a real topic: everything once, whatever is killed, deleted or refused."""

from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.errors import ConfigError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.store.cold.notes import ColdNotes
from duebridge_connectors.spark.jobs import intake
from duebridge_connectors.spark.jobs.intake import Intake, IntakeSummary, run_intake
from duebridge_connectors.spark.kafka_source import topic_of
from duebridge_connectors.spark.session import job_error
from tests.spark.by_hand import read_by_hand
from tests.spark.source.test_rows import rejected
from tests.spark.world import LATER_MS, RECORDED_AT_MS, Sent, Topics, World

DUE = {"due_at": str(LATER_MS)}


Run = Callable[..., IntakeSummary]


@pytest.fixture
def take_in(spark: SparkSession, world: World) -> Run:
    """Take in what there is, as somebody does who runs it again and again."""

    def run(topic: str, route: str = "plain", rejects: str | None = None, **more: Any) -> Any:
        fields = {"columns": DUE, "checkpoint": str(world.home / "checkpoint"), **more}
        options = world.options(route, **({"rejects": rejects} if rejects else {}))
        return run_intake(spark, Intake(topic=topic, **fields), **options)

    return run


def counts(summary: IntakeSummary) -> tuple[int, int, int]:
    return summary.rows.accepted, summary.rows.duplicate, summary.rows.rejects


@pytest.mark.parametrize(("conflict", "tasks"), [("refuse", 2), ("replace", 1)])
def test_intake_that_may_replace_reads_a_partition_in_one_task(
    world: World, topics: Topics, monkeypatch: pytest.MonkeyPatch, conflict: str, tasks: int
) -> None:
    def counted(frame: DataFrame, **options: Any) -> Any:
        found.append(frame.select(F.spark_partition_id()).distinct().count())
        return write_envelopes(frame, **options)

    found: list[int] = []
    write_envelopes = intake.write_envelopes
    monkeypatch.setattr(intake, "write_envelopes", counted)
    topic = topics.make(partitions=1)
    topics.fill(topic, [Sent(body, b"X") for body in (b"old", b"older", b"later", b"last")])
    wanted = Intake(
        topic=topic,
        checkpoint=str(world.home / "checkpoint"),
        columns=DUE | {"id": "cast(key as string)"},
    )
    run_intake(world.spark, wanted, **world.options("plain", on_conflict=conflict))
    assert found == [tasks]
    if conflict == "replace":
        assert [row["body"] for row in read_by_hand(world, route="plain")] == [b"last"]


def topic_ref(spark: SparkSession, topics: Topics, topic: str) -> Any:
    return topic_of(spark, {"kafka.bootstrap.servers": topics.bootstrap}, topic)


def test_intake_takes_each_record_once_with_key_headers_and_delay(
    world: World, topics: Topics, take_in: Run
) -> None:
    topic = topics.make()
    late_s = LATER_MS // 1000 - RECORDED_AT_MS // 1000
    headers = (("x-delay", f"{late_s}s".encode()), ("a", b"1"), ("a", b"2"))
    topics.fill(topic, [Sent(b"one", b"k", headers, partition=1)])
    assert counts(take_in(topic, columns={}, delay_header="x-delay")) == (1, 0, 0)
    topic_id = topic_ref(world.spark, topics, topic).id
    (row,) = read_by_hand(world, route="plain")
    assert (row["id"], row["body"], row["key"]) == (f"{topic_id}:1:0", b"one", b"k")
    assert tuple((each["name"], each["value"]) for each in row["headers"]) == headers
    assert row["due_at"].timestamp() == LATER_MS // 1000
    topics.fill(topic, [Sent(b"two", None, headers, partition=1)])
    assert counts(take_in(topic, columns={}, delay_header="x-delay")) == (1, 0, 0)
    assert world.ids("plain") == {f"{topic_id}:1:0", f"{topic_id}:1:1"}


def test_intake_in_bounded_batches_rejects_what_is_no_envelope(
    world: World, topics: Topics, take_in: Run
) -> None:
    topic = topics.make(partitions=1)
    topics.fill(topic, [Sent(b"x"), Sent(b"y" * 2000), Sent(b"z")])
    summary = take_in(topic, max_offsets=2, rejects=str(world.home / "rejects"))
    assert (counts(summary), summary.batches) == ((2, 0, 1), 2)
    (row,) = rejected(world.home / "rejects")
    assert row["reject_reason"] == "body: expected at most 1024 bytes; got 2000"
    assert take_in(topic).batches == 0


def test_intake_of_a_header_that_is_no_utf8_refuses_its_record_and_goes_on(
    world: World, topics: Topics, take_in: Run
) -> None:
    topic = topics.make(partitions=1)
    later = f"{LATER_MS - RECORDED_AT_MS}ms".encode()
    delays = (later, b"\xff", later)
    topics.fill(topic, [Sent(b"x", headers=(("x-delay", delay),)) for delay in delays])
    to = {"columns": {}, "delay_header": "x-delay", "rejects": str(world.home / "rejects")}
    assert counts(take_in(topic, **to)) == (2, 0, 1)
    (file,) = (world.home / "rejects").glob("*.parquet")
    (reason,) = pq.read_table(file, columns=["reject_reason"]).column(0).to_pylist()
    assert reason.startswith("delay: expected a duration")
    assert reason.endswith(r"got '\udcff'")
    assert take_in(topic, **to).batches == 0


def test_intake_leaves_out_what_an_aborted_transaction_sent(
    world: World, topics: Topics, take_in: Run
) -> None:
    topic = topics.make(partitions=1)
    topics.abort(topic, Sent(b"aborted"))
    topics.fill(topic, [Sent(b"x")])
    assert counts(take_in(topic)) == (1, 0, 0)
    uncommitted = {"kafka.isolation.level": "read_uncommitted"}
    again = take_in(
        topic, route="split", read_options=uncommitted, checkpoint=str(world.home / "b")
    )
    assert counts(again) == (2, 0, 0)


def test_intake_from_the_latest_record_ignores_what_else_its_directory_has(
    world: World, topics: Topics, take_in: Run
) -> None:
    (world.home / "checkpoint" / "lost+found").mkdir(parents=True)
    topic = topics.make(partitions=1)
    topics.fill(topic, [Sent(b"x")])
    summary = take_in(topic, start="latest")
    assert (counts(summary), summary.is_made_anew) == ((0, 0, 0), False)


def test_intake_of_a_topic_made_anew_reads_it_from_its_beginning_under_other_ids(
    world: World, topics: Topics, take_in: Run
) -> None:
    topic = topics.make(partitions=1)
    topics.fill(topic, [Sent(b"x")] * 3)
    assert counts(take_in(topic)) == (3, 0, 0)
    topics.make_anew(topic, partitions=1)
    topics.fill(topic, [Sent(b"x")] * 5)
    again = take_in(topic, start="latest")
    assert (counts(again), again.is_made_anew) == ((5, 0, 0), True)
    assert len(world.ids("plain")) == 8


def test_intake_that_takes_records_in_again_brings_back_nothing_cancelled_while_cold(
    world: World, topics: Topics, take_in: Run
) -> None:
    topic = topics.make(partitions=1)
    topics.fill(topic, [Sent(b"x"), Sent(b"y")])
    assert counts(take_in(topic, "cold")) == (2, 0, 0)
    name = f"{topic_ref(world.spark, topics, topic).id}:0:0"
    number, record = world.record("cold", name)
    store = world.store("cold", number, cold_tier_ms=1 << 40)
    ColdNotes(world.connection, store.shard).note_first(1)
    assert store.demote("B", 0, [(name, record.generation)]).removed == 1
    assert world.producer().cancel("cold", name) == "recorded"
    again = take_in(topic, "cold", checkpoint=str(world.home / "lost")).rows
    assert (again.accepted, again.duplicate, again.cancelled) == (0, 1, 1)


def test_intake_while_its_topic_is_made_anew_fails_and_then_goes_on(
    spark: SparkSession, topics: Topics, take_in: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.make(partitions=1)
    topics.fill(topic, [Sent(b"x")] * 3)
    asked = topic_ref(spark, topics, topic)
    answers = iter([asked, asked, asked._replace(id="another")])
    monkeypatch.setattr("duebridge_connectors.spark.jobs.intake.topic_of", lambda *_: next(answers))
    with pytest.raises(StreamingQueryException) as caught:
        take_in(topic)
    said = str(job_error(caught.value))
    assert said.startswith(f"topic {topic}: expected the one with id {asked.id}; got a new one")
    monkeypatch.undo()
    assert counts(take_in(topic)) == (0, 3, 0)  # its offsets had not counted as read


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"columns": {}}, "due_at: missing"),
    ({"due_header": "x-due"}, "due_at: expected either a header or a column"),
    ({"start": "now"}, "start: expected one of earliest, latest; got 'now'"),
    ({"route": "amqp"}, "route amqp: its target is not on Kafka"),
]


def test_intake_without_what_it_needs_says_so_before_a_record_is_read(
    world: World, topics: Topics, take_in: Run
) -> None:
    with pytest.raises(BrokerUnavailable, match="topic nowhere: "):
        take_in("nowhere")
    topic = topics.make()
    for wanted, said in REFUSED:
        with pytest.raises(ConfigError, match=said):
            take_in(topic, **wanted)
    assert not (world.home / "checkpoint").exists()


@pytest.mark.long
def test_run_the_command_without_a_broker_exits_4_in_one_line(
    world: World, kafka_jars: str
) -> None:
    world.use(world.url, "127.0.0.1:1")
    words = ["spark", "intake", "plain", "t", "--checkpoint", str(world.home / "checkpoint")]
    words += ["--column", "delay='1h'", "--spark", f"spark.jars={kafka_jars}", "--output", "json"]
    done = world.command(*words)
    assert (done.code, done.err.count("\n")) == (4, 1), done.err
    assert done.err.startswith("duebridge: topic t: ")
