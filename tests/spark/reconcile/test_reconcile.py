"""The job reconcile on a real store and a real Kafka: every planted violation is named."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession

from duebridge.audit import fingerprint
from duebridge.config.load import load_config
from duebridge.errors import ConfigError
from duebridge.store.registry import Registry
from duebridge_connectors.spark.jobs import evidence, reconcile
from duebridge_connectors.spark.jobs.demote import run_demote
from duebridge_connectors.spark.jobs.evidence import TableJournal, read_export, topics_pattern
from duebridge_connectors.spark.jobs.journal import run_journal
from duebridge_connectors.spark.jobs.reconcile import Reconciliation, run_reconcile
from duebridge_connectors.spark.jobs.report import run_report
from duebridge_connectors.spark.kafka_source import read_records
from duebridge_connectors.spark.transforms.arrivals import arrived_in_kafka
from duebridge_connectors.spark.transforms.facts import MARGIN_MS
from tests.spark.source.test_records import Header, records
from tests.spark.world import LATER_MS, RECORDED_AT_MS, Sent, Topics, World

MONTH_MS = 31 * 86_400_000  # more than until LATER_MS: so long ago something began today
BY_BROKER = {"message.timestamp.type": "LogAppendTime"}


class Scene:
    """A route to a topic of its own, whose worker is played by the test."""

    def __init__(self, world: World, topics: Topics) -> None:
        self.spark, self.world, self._topics = world.spark, world, topics
        self.topic, self.letters = (topics.make(configs=BY_BROKER) for _ in range(2))
        config = yaml.safe_load(Path(world.config).read_text())
        config["routes"] = {name: config["routes"][name] for name in ("plain", "amqp")}
        config["routes"]["plain"] |= {
            "target": {"broker": "kafka", "topic": self.topic},
            "dead_letter": {"broker": "kafka", "topic": self.letters},
            "cold_tier": {"path": str(world.home / "cold"), "horizon": "7d"},
        }
        Path(world.config).write_text(yaml.safe_dump(config))

    def accept(self, *names: str, at: int = 5) -> None:
        for name in names:
            self.world.schedule("plain", name, at=at)

    def settle(self) -> None:
        """Take all that is due out of the store, as if it had been confirmed."""
        self.world.deliver("plain", 100)

    def publish(
        self, *names: str, body: bytes | None = None, topic: str | None = None, **more: str
    ) -> None:
        texts = {"x_route": "plain", "x_scheduled_at": str(int(time.time() * 1000)), **more}
        same = [(key.replace("_", "-"), text.encode()) for key, text in texts.items()]
        records = [
            Sent(body or body_of(name), None, (("x-message-id", name.encode()), *same))
            for name in names
        ]
        usual = self.letters if "x_dlq_reason" in more else self.topic
        self._topics.fill(topic or usual, records)

    def judge(self, **more: Any) -> Reconciliation:
        return run_reconcile(self.spark, self.world.config, routes=["plain"], **more)


def body_of(name: str) -> bytes:
    return f"body of {name}".encode()


@pytest.fixture
def scene(world: World, topics: Topics) -> Scene:
    return Scene(world, topics)


def plant(scene: Scene) -> None:
    """One of each violation; `good`, `buried` and `later` are as they should be."""
    scene.accept("good", "lost", "twice", "both", "corrupt", "buried", "called off")
    scene.accept("astray", "letter astray", "misdated")
    assert scene.world.producer().cancel("plain", "called off") == "cancelled"
    scene.settle()
    scene.publish("good", "twice", "twice", "both", "called off", "strange")
    scene.publish("corrupt", body=b"other")
    scene.publish("buried", "both", x_dlq_reason="expired")
    scene.publish("astray", topic=scene.letters)
    scene.publish("letter astray", topic=scene.topic, x_dlq_reason="expired")
    scene.publish("misdated", x_due_at="7")
    scene.accept("later", "early", at=LATER_MS)
    scene.publish("early")
    scene.accept("stuck")


PLANTED = {
    "lost": ["plain/lost"],
    "early": ["plain/early"],
    "after_cancel": ["plain/called off"],
    "unexpected": ["plain/strange"],
    "corrupt": ["plain/corrupt"],
    "stuck": ["plain/stuck"],
    "misplaced": ["plain/astray", "plain/letter astray"],
    "misdated": ["plain/misdated"],
    "duplicates": ["plain/twice"],
    "in_two_places": ["plain/both"],
}


def receipts(scene: Scene, *names: str) -> DataFrame:
    due = datetime.fromtimestamp(0, UTC)
    made = [("plain", name, due, fingerprint(body_of(name), None, ())) for name in names]
    schema = "route string, id string, due_at timestamp, fingerprint string"
    return scene.spark.createDataFrame(made, schema)


def test_reconcile_names_every_violation_that_was_planted(scene: Scene) -> None:
    plant(scene)
    out = str(scene.world.home / "verdict")
    given = receipts(scene, "good", "corrupt")
    found = scene.judge(receipts=given, stuck_after="0ms", out=out)
    assert (found.verdict, found.examples) == ("broken", PLANTED)
    (route,) = found.routes
    assert (route.accepted, route.delivered, route.dead, route.held) == (13, 9, 3, 3)
    assert (route.cancelled, route.duplicate_copies) == (1, 1)
    assert "BROKEN: lost: plain/lost; early: plain/early;" in str(found)
    rows = scene.spark.read.parquet(f"{out}/violations").collect()
    kinds = [(row.kind, f"plain/{row.id}") for row in rows]
    assert sorted(kinds) == sorted((kind, each) for kind, ids in PLANTED.items() for each in ids)
    story = scene.spark.read.parquet(f"{out}/stories").where("id = 'lost'").orderBy("sequence")
    assert [row.kind for row in story.collect()] == ["accepted", "delivered"]
    page = Path(out, "verdict.html").read_text()
    assert found.page == f"{out}/verdict.html"
    assert all(f"{ids[0]}: {kind}" in page for kind, ids in PLANTED.items())


@pytest.mark.long
def test_reconcile_of_a_table_judges_what_is_in_it_and_holds(scene: Scene) -> None:
    table = str(scene.world.home / "journal")
    scene.accept("good")
    scene.settle()
    scene.publish("good")
    run_journal(scene.spark, table, config=scene.world.config)
    scene.accept("of the next time")
    scene.settle()
    found = scene.judge(journal=table, late="1h")
    assert (found.holds, found.examples) == (True, {})
    (route,) = found.routes
    assert (route.accepted, route.delivered, route.late) == (1, 1, 0)
    assert route.lateness_max_ms is not None
    assert 0 <= route.lateness_max_ms < 3_600_000


@pytest.mark.long
def test_reconcile_of_a_table_that_goes_on_meanwhile_judges_what_came_before(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = str(scene.world.home / "journal")
    held = reconcile.snapshot_held

    def held_and_then_more(*given: Any) -> DataFrame:
        rows = held(*given)
        scene.accept("later", at=LATER_MS)
        run_journal(scene.spark, table, config=scene.world.config)
        return rows

    scene.accept("good")
    scene.settle()
    scene.publish("good")
    run_journal(scene.spark, table, config=scene.world.config)
    monkeypatch.setattr(reconcile, "snapshot_held", held_and_then_more)
    monkeypatch.setattr(reconcile, "MAX_RECHECKED", 0)
    found = scene.judge(journal=table)
    assert (found.holds, found.examples) == (True, {})


@pytest.mark.long
def test_reconcile_of_a_table_knows_what_the_store_journalled_since(scene: Scene) -> None:
    table = str(scene.world.home / "journal")
    scene.accept("called off since", "moved since", at=LATER_MS)
    run_journal(scene.spark, table, config=scene.world.config)
    producer = scene.world.producer()
    assert producer.cancel("plain", "called off since") == "cancelled"
    assert producer.reschedule("plain", "moved since", delay="0ms") == "rescheduled"
    scene.accept("good since")
    scene.settle()
    scene.publish("moved since", "good since")
    for until_ms, accepted in ((None, 2), (LATER_MS, 3)):
        found = scene.judge(journal=table, until_ms=until_ms)
        assert (found.verdict, found.examples, found.doubtful) == ("holds", {}, {})
        assert found.routes[0].accepted == accepted


@pytest.mark.long
def test_reconcile_of_a_table_that_takes_in_what_the_store_was_read_for_counts_it_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = str(scene.world.home / "journal")
    scene.accept("before", at=LATER_MS)
    run_journal(scene.spark, table, config=scene.world.config)
    scene.accept("good")
    scene.settle()
    scene.publish("good")
    real = reconcile.journal_of_table

    def and_then_more(*given: Any) -> TableJournal:
        rows = real(*given)
        run_journal(scene.spark, table, config=scene.world.config)
        return rows

    monkeypatch.setattr(reconcile, "journal_of_table", and_then_more)
    found = scene.judge(journal=table, until_ms=LATER_MS)
    assert (found.verdict, found.examples) == ("holds", {})
    assert found.routes[0].accepted == 2


@pytest.mark.long
def test_reconcile_of_a_period_that_nothing_was_seen_of_does_not_hold(scene: Scene) -> None:
    table = str(scene.world.home / "journal")
    scene.accept("before")
    run_journal(scene.spark, table, config=scene.world.config)
    since_ms = int(time.time() * 1000)
    scene.accept("lost since")
    scene.settle()
    found = scene.judge(journal=table, since_ms=since_ms)
    assert (found.verdict, found.examples) == ("undetermined", {})
    assert "the journal after 20" in found.missing[0]
    for begin_ms, until_ms in ((LATER_MS, None), (since_ms, since_ms - 1)):
        with pytest.raises(ConfigError, match="since: expected an instant before the end, 20"):
            scene.judge(since_ms=begin_ms, until_ms=until_ms)


@pytest.mark.long
def test_reconcile_of_a_table_without_a_routes_journal_is_undetermined(scene: Scene) -> None:
    table = str(scene.world.home / "journal")
    scene.world.schedule("amqp", "other")
    scene.accept("good")
    scene.world.fail_over("plain")  # renewed, the shard has an entry more, and skips numbers
    scene.settle()
    scene.publish("good")
    run_journal(scene.spark, table, config=scene.world.config, route="amqp")
    found = scene.judge(journal=table)
    assert (found.verdict, found.doubtful) == ("undetermined", {"unexpected": ["plain/good"]})
    assert "3 entries of the journal of plain/0 after" in found.missing[0]


@pytest.mark.long
def test_reconcile_of_a_route_that_was_purged_doubts_what_came_before(scene: Scene) -> None:
    scene.accept("old")
    scene.settle()
    scene.publish("old")
    Registry(scene.world.connection, scene.world.namespace).remove_route("plain", 1)
    scene.accept("good")
    scene.settle()
    scene.publish("good")
    found = scene.judge()
    assert (found.verdict, found.doubtful) == ("undetermined", {"unexpected": ["plain/old"]})
    assert "the journal of plain, which a purge removed, before" in found.missing[0]
    scene.publish("strange")
    assert scene.judge().examples == {"unexpected": ["plain/strange"]}


@pytest.mark.long
def test_reconcile_of_one_route_judges_nothing_of_another(scene: Scene) -> None:
    scene.accept("good")
    scene.settle()
    scene.publish("good")
    scene.publish("of amqp", x_route="amqp")
    scene.publish("of another installation", x_route="unheard of")
    due = datetime.fromtimestamp(0, UTC)
    rows = [("plain", "good", due), ("amqp", "lost", due)]
    given = scene.spark.createDataFrame(rows, "route string, id string, due_at timestamp")
    export = scene.world.home / "amqp.jsonl"
    export.write_text(json.dumps({"route": "amqp", "id": "unexpected", "at": 1_000}))
    found = scene.judge(receipts=given, exports=[str(export)])
    assert found.examples == {"misplaced": ["amqp/of amqp"]}


@pytest.mark.long
def test_reconcile_since_an_instant_reads_topics_from_there(scene: Scene, topics: Topics) -> None:
    old = topics.make()
    topics.fill(old, [Sent(b"of 2023")])
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": old}
    reader = scene.spark.read
    assert read_records(scene.spark, reader, options, RECORDED_AT_MS).count() == 1
    assert read_records(scene.spark, reader, options, RECORDED_AT_MS + 1).count() == 0
    asked = []

    def read(*given: Any) -> DataFrame:
        asked.append(given[-1])
        return read_records(*given)

    with pytest.MonkeyPatch.context() as later:
        later.setattr(evidence, "read_records", read)
        scene.accept("good")
        scene.settle()
        scene.publish("good")
        assert scene.judge(since_ms=LATER_MS - MONTH_MS).holds
    assert asked == [LATER_MS - MONTH_MS - MARGIN_MS]


@pytest.mark.long
def test_reconcile_asks_once_more_for_what_moved_while_the_store_was_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.accept("in motion", at=LATER_MS)
    real = reconcile.snapshot_held
    monkeypatch.setattr(reconcile, "snapshot_held", lambda *given: real(*given).where("false"))
    found = scene.judge()
    assert (found.holds, found.routes[0].held) == (True, 1)


@pytest.mark.long
def test_reconcile_and_report_count_what_is_cold(scene: Scene) -> None:
    scene.accept("far", at=LATER_MS)
    assert run_demote(scene.spark, config=scene.world.config, route="plain").removed == 1
    found = scene.judge()
    assert (found.holds, found.routes[0].held) == (True, 1)
    out = str(scene.world.home / "report")
    done = run_report(scene.spark, out, config=scene.world.config, routes=["plain"])
    assert done.waiting == 1


@pytest.mark.long
def test_reconcile_of_an_id_that_began_anew_takes_no_cold_copy_for_it(scene: Scene) -> None:
    scene.accept("moved", "lost", at=LATER_MS)
    assert run_demote(scene.spark, config=scene.world.config, route="plain").removed == 2
    scene.accept("moved", "lost", at=LATER_MS + 1)
    shard, client = scene.world.store("plain").shard, scene.world.connection.client
    client.hdel(shard.key("envelopes"), "lost")
    client.zrem(shard.key("pending"), "lost")
    assert scene.judge().examples == {"lost": ["plain/lost"]}


def test_reconcile_of_a_broker_that_spark_cannot_read_wants_an_export(world: World) -> None:
    with pytest.raises(ConfigError, match="expected an export of a consumer for amqp"):
        run_reconcile(world.spark, world.config)


def test_export_of_a_consumer_is_read_from_lines_of_json(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = [
        {"route": "amqp", "id": "a", "at": 1_000, "fingerprint": "p"},
        {"route": "amqp", "id": "b", "at": 2_000, "dead_letter": True},
    ]
    path = tmp_path / "seen.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    found = read_export(spark, str(path)).orderBy("id").collect()
    rows = [(row.id, row.dead_letter, row.fingerprint) for row in found]
    assert rows == [("a", False, "p"), ("b", True, "")]
    path.write_text('{"id": "a"}')
    with pytest.raises(ConfigError, match="expected columns route, id and at"):
        read_export(spark, str(path))


def test_arrived_in_kafka_has_damaged_records_and_nothing_of_others(spark: SparkSession) -> None:
    mine, scheduled = ("x-route", b"r"), ("x-scheduled-at", b"1000")
    given: list[list[Header] | None] = [
        [("x-message-id", b"a"), mine, scheduled],
        [("x-message-id", b"damaged"), ("x-dlq-route", b"r"), ("x-dlq-reason", b"poison")],
        [("x-message-id", b"odd"), mine, ("x-scheduled-at", b"yesterday")],
        [("x-message-id", b"of another program")],
        None,
    ]
    found = arrived_in_kafka(records(spark, *given), with_fingerprint=False).orderBy("id").collect()
    assert [(row.route, row.id, row.dead_letter, row.scheduled_at is None) for row in found] == [
        ("r", "a", False, False),
        ("r", "damaged", True, True),
        ("r", "odd", False, True),
    ]


def test_topics_pattern_takes_globs_and_quotes_dots(world: World) -> None:
    routes = load_config(world.config).routes
    assert topics_pattern([routes["open"], routes["plain"]]) == r"open|open\-.*|plain"


@pytest.mark.long
def test_reconcile_command_exits_5_where_the_verdict_is_undetermined(
    scene: Scene, kafka_jars: str
) -> None:
    scene.accept("good")
    scene.world.cut("plain", 1)
    settings = [f"spark.jars={kafka_jars}", "spark.sql.shuffle.partitions=2"]
    words = ["--route", "plain", *(f"--spark={each}" for each in settings)]
    done = scene.world.command("spark", "reconcile", *words)
    assert done.code == 5, done.err
    assert "UNDETERMINED" in done.out
    assert "1 entry of the journal of plain/0" in done.out
