"""Replay of a real dead-letter topic: counted first, then once each, and no loop."""

import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from duebridge.envelope import Target
from duebridge.errors import ConfigError, EnvelopeError
from duebridge_connectors.spark.jobs.replay import LetterCount, Replay, ReplaySummary, run_replay
from duebridge_connectors.spark.source.loader import Summary
from tests.spark.by_hand import read_by_hand
from tests.spark.source.test_records import letter
from tests.spark.world import Sent, Topics, World
from tests.support.command import ENVIRONMENT, PROGRAM
from tests.support.kafka.kafka_broker import KafkaBroker
from tests.support.servers import wait_until
from tests.support.spark.launch import AS_WORDS


def dead(*ids: str, route: str = "plain", **changed: bytes | None) -> list[Sent]:
    given = {"x_dlq_route": route.encode(), "x_dlq_target": f"kafka:{route}".encode(), **changed}
    headers = [letter(x_message_id=name.encode(), **given) for name in ids]
    return [Sent(b"body", b"k", tuple(of)) for of in headers]


Run = Callable[..., ReplaySummary]


@pytest.fixture
def replayed(spark: SparkSession, world: World, topics: Topics) -> Run:
    """Fill a new topic with these letters and replay it; without letters, the same once more."""
    topic = topics.make()

    def run(*letters: Sent, rejects: str | None = None, **more: Any) -> ReplaySummary:
        topics.fill(topic, letters)
        wanted = Replay(**{"topic": topic, "broker": "kafka", "delay": "1h", **more})
        options = {"rejects": rejects} if rejects else {}
        return run_replay(spark, wanted, is_dry_run=False, config=world.config, **options)

    return run


def test_replay_schedules_to_each_route_once_and_leaves_what_it_may_not(
    world: World, replayed: Run
) -> None:
    first = replayed(
        *dead("a", "b"),
        *dead("a"),  # as a shunt leaves that was killed after its publish
        *dead("c", route="split"),
        *dead("d", x_replays=b"3"),
        Sent(b"damaged", None, (("x-dlq-route", b"plain"),)),
    )
    counts = [(rows.route, rows.accepted, rows.duplicate) for rows in first.rows]
    assert (counts, first.is_complete) == ([("plain", 2, 1), ("split", 1, 0)], False)
    again = replayed()
    assert [(rows.accepted, rows.duplicate) for rows in again.rows] == [(0, 3), (0, 1)]
    assert len(world.ids("plain")) == 2


def test_replay_of_what_was_delivered_meanwhile_changes_nothing(
    world: World, replayed: Run
) -> None:
    assert replayed(*dead("a", "b"), delay="0s").rows[0].accepted == 2
    assert len(world.deliver("plain", 2)) == 2
    (again,) = replayed(delay="0s").rows
    assert (again.accepted, again.duplicate) == (0, 2)


def test_replay_by_reason_route_and_sql_repairs_what_is_meant(world: World, replayed: Run) -> None:
    letters = dead("a", "b") + dead("c", x_dlq_reason=b"expired") + dead("d", route="split")
    chosen = {"reasons": ["too_large"], "routes": ["plain"], "where": "message_id > 'a'"}
    columns = {"body": "upper(cast(value as string))"}
    (rows,) = replayed(*letters, columns=columns, **chosen).rows
    assert rows.accepted == 1
    (row,) = read_by_hand(world, route="plain")
    headers = {header["name"]: header["value"] for header in row["headers"]}
    assert row["body"] == b"BODY"
    assert headers == {"mine": b"1", "x-replays": b"1", "x-replay-of": b"b"}


def test_replay_to_a_target_of_its_own_keeps_it_where_the_route_permits_it(
    world: World, replayed: Run
) -> None:
    named = {"a": b"kafka:open", "b": b"kafka:open-b", "c": b"kafka:shut", "d": b"former:open-b"}
    letters = [dead(name, route="open", x_dlq_target=target)[0] for name, target in named.items()]
    done = replayed(*letters)
    counted = {group.status: group.count for group in done.letters}
    assert counted == {"ready": 2, "not_allowed": 1, "other_broker": 1}
    assert [(rows.accepted, rows.rejects) for rows in done.rows] == [(2, 0)]
    assert not done.is_complete
    found = read_by_hand(world, route="open")
    assert {row["target"] and row["target"]["topic"] for row in found} == {None, "open-b"}


def test_replay_with_another_target_asks_for_no_letters_own(world: World, replayed: Run) -> None:
    letters = dead("a", route="open", x_dlq_target=b"former:open-b")
    target = "named_struct('broker', 'kafka', 'topic', 'open-c')"
    assert replayed(*letters, columns={"target": target}).rows[0].accepted == 1
    (row,) = read_by_hand(world, route="open")
    assert row["target"]["topic"] == "open-c"


def test_replay_in_a_dry_run_counts_and_touches_nothing(world: World, topics: Topics) -> None:
    topic = topics.make()
    topics.fill(topic, dead("a", "b") + dead("c", x_dlq_reason=b"expired", x_replays=b"9"))
    summary = run_replay(world.spark, Replay(topic=topic, broker="kafka"), config=world.config)
    counted = [("plain", "too_large", "ready", 2), ("plain", "expired", "looped", 1)]
    assert summary.letters == [LetterCount(*of) for of in counted]
    assert (summary.ready, summary.rows) == (2, [])
    client: Any = world.connection.client
    assert list(client.scan_iter(f"*{world.namespace}*", count=1000)) == []


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"reasons": ["late"]}, r"reason: expected one of .*; got 'late'"),
    ({"routes": ["gone"]}, r"route: expected one of .*; got 'gone'"),
    ({"columns": {"id": "'x'"}}, r"column id: set by the job"),
    ({"broker": None}, r"expected one broker whose routes name it as dead_letter"),
    ({"columns": {"body": "1"}}, r"body: expected STRING or BINARY; got INT"),
]


def test_replay_of_what_cannot_be_is_refused(replayed: Run) -> None:
    letters = dead("a")
    for wanted, said in REFUSED:
        with pytest.raises((ConfigError, EnvelopeError), match=said):
            replayed(*letters, **wanted)
        letters = []


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
def test_run_the_command_repairs_what_a_worker_had_shunted_and_a_worker_delivers_it(
    world: World, kafka_bootstrap: str, kafka_jars: str
) -> None:
    with closing(KafkaBroker(kafka_bootstrap)) as kafka:
        due, letters = kafka.missing_target(), kafka.missing_target()
        kafka.create(due, configs={"max.message.bytes": "800"})
        kafka.create(letters)
        names = {"due": due.topic, "dead": letters.topic, "namespace": world.namespace}
        text = CONFIG.format(url=world.url, bootstrap=kafka_bootstrap, **names)
        Path(world.config).write_text(text)
        send = ["send", "due", "x" * 2000, "--delay", "0s", "--id", "order-42"]
        assert world.command(*send).code == 0
        until_delivered(world, kafka, letters)
        job = ["spark", "replay", str(letters.topic), "--column", "body=substring(value, 1, 9)"]
        job += [*AS_WORDS, "--spark", f"spark.jars={kafka_jars}"]
        dry = world.command(*job)
        said = "would replay 1; nothing was changed; --yes does it"
        assert (dry.code, dry.out.splitlines()[-1]) == (0, said), dry.err
        done = world.command(*job, "--yes", "--output", "json", DUEBRIDGE_ACTOR="ada")
        assert (done.code, done.json()["rows"][0]["accepted"]) == (0, 1), done.err
        assert world.journalled("due")[-1] == ("accepted", "ada")
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
            wait_until(lambda: bool(kafka.records(target)), f"a record in {target}", within_s=240)
        finally:
            worker.terminate()
            worker.wait()
