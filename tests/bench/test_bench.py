"""`duebridge bench` as a person runs it, on an embedded store and the real brokers, with few."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pika
import pytest
from kafka.admin import KafkaAdminClient

from duebridge.bench import durability
from duebridge.bench.figures import SECTIONS, percentile
from tests.support.command import Command, embedded_command, wait_until
from tests.support.servers import free_port, listens, silent_listener

GIVE_UP_S = 240.0  # a run takes seconds, or a minute on a busy machine
SCRATCH = "duebridge-bench-"
JSON = ("--output", "json")
SMALL = "--count 50 --rates 100 --seconds 0.3 --pending 200 --backlog 300 --calls 2"
CONFIG = """\
version: 1
store: {{url: "{url}"}}
brokers:
  orders: {{type: kafka, bootstrap_servers: ["{kafka}"]}}
  billing: {{type: rabbitmq, url: "{rabbitmq}"}}
routes: {{}}
"""

pytestmark = pytest.mark.timeout(2 * GIVE_UP_S)


@pytest.fixture
def command(tmp_path: Path, kafka_bootstrap: str, rabbitmq_url: str) -> Iterator[Command]:
    with command_in(tmp_path, kafka_bootstrap, rabbitmq_url) as built:
        yield built


@contextmanager
def command_in(home: Path, kafka: str, rabbitmq: str) -> Iterator[Command]:
    with embedded_command(home) as built:
        built.file.write_text(CONFIG.format(url=built.url, kafka=kafka, rabbitmq=rabbitmq))
        built.within_s = GIVE_UP_S
        yield built


def scratch_topics(bootstrap: str) -> set[str]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    found = {name for name in admin.list_topics() if name.startswith(SCRATCH)}
    admin.close()
    return found


class Measured(NamedTuple):
    """What a run of all sections printed, and what was there before it and after it."""

    rows: list[dict[str, Any]]
    topics_before: set[str]
    keys: list[bytes]


@pytest.fixture(scope="module")
def measured(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str, rabbitmq_url: str
) -> Measured:
    home = tmp_path_factory.mktemp("all")
    before = scratch_topics(kafka_bootstrap)
    with command_in(home, kafka_bootstrap, rabbitmq_url) as command:
        done = command("bench", *SMALL.split(), "--rounds", "1", *JSON)
        assert done.code == 0, done.err
        with closing(command.connection()) as connection:
            client: Any = connection.client
            return Measured(done.json_lines(), before, client.keys("*"))


@pytest.mark.long
def test_bench_with_few_messages_measures_every_section_and_leaves_nothing_behind(
    measured: Measured, kafka_bootstrap: str
) -> None:
    assert {row["section"] for row in measured.rows} == set(SECTIONS)
    wait_until(  # a broker may name a topic for a moment after it was deleted
        lambda: scratch_topics(kafka_bootstrap) <= measured.topics_before,
        "the scratch topics to go",
    )
    assert measured.keys == []


def test_bench_of_durability_needs_no_store_and_no_broker(tmp_path: Path) -> None:
    command = Command(tmp_path, "", "not: a configuration", GIVE_UP_S)
    few = ("--count", "300", "--rounds", "1", "--output", "json")
    done = command("bench", "--only", "durability", *few)
    assert done.code == 0, done.err
    medians = {row["what"]: row for row in done.json_lines() if row["round"] == 0}
    sides = ["async", "fsync", "replicated 1", "replicated 2"]
    assert [*medians] == [f"{what}, {side}" for side in sides for what in ("schedule", "deliver")]
    assert medians["schedule, async"]["throughput_ratio"] == 1
    assert all(row["messages_per_s"] > 0 for row in medians.values())


def test_bench_of_the_bridge_alternates_the_sides_and_ends_with_medians(command: Command) -> None:
    done = command("bench", "--only", "bridge", *SMALL.split(), "--rounds", "2", "--output", "json")
    rows = [row for row in done.json_lines() if row["broker"] == "orders"]
    sides = ["client alone", "schedule", "bridge"]
    assert [row["what"] for row in rows] == [*sides * 3, "bridge / alone", "whole life"]
    assert [row["round"] for row in rows] == [1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0]
    bridge = [row for row in rows if row["what"] == "bridge"]
    calls = [row["store_calls"] for row in bridge]
    assert calls[2] == pytest.approx((calls[0] + calls[1]) / 2)
    assert all(row["others_calls"] == 0 for row in bridge)


@pytest.mark.long
def test_bench_of_intakes_alternates_the_sides_and_asks_nothing_of_the_store_alone(
    measured: Measured,
) -> None:
    intakes = [row for row in measured.rows if row["section"] == "intakes"]
    for broker in ("orders", "billing"):
        rows = [row for row in intakes if row["broker"] == broker]
        sides = ["bare consumer", "intake"]
        assert [row["what"] for row in rows] == [*sides * 2, "intake / bare"]
        assert rows[0]["store_calls"] == 0
        assert rows[1]["store_calls"] > 0
        assert rows[1]["others_calls"] == 0
        assert rows[-1]["throughput_ratio"] > 0


def test_bench_as_a_table_has_a_column_for_each_figure(command: Command, rabbitmq_url: str) -> None:
    flags = ["--store", command.url, "--rabbitmq", rabbitmq_url, "--only", "lateness"]
    done = command("bench", *flags, *SMALL.split(), "--rounds", "1")
    assert done.code == 0, done.err
    header = next(line for line in done.out.splitlines() if line.startswith("lateness rabbitmq"))
    assert {"p50_ms", "p99_ms", "early", "store_cpu_us"} <= set(header.split())
    assert "round 1" in done.err


def test_server_of_the_bench_whose_port_somebody_took_starts_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with silent_listener() as taken, ExitStack() as stack:
        ports = [taken, free_port()]
        monkeypatch.setattr(durability, "_free_port", iter(ports).__next__)
        assert durability._start(stack, tmp_path / "home") == ports[1]
        assert listens(ports[1])


WRONG = [
    ("--only", "bridge,speed", "--only: expected any of bridge, intakes, lateness"),
    ("--rates", "500,fast", "--rates: expected whole numbers above 0, by commas"),
    ("--only", "idle", "brokers: expected one of type kafka or rabbitmq; got memory"),
    ("--kafka", "", "brokers"),
]


@pytest.mark.parametrize(("option", "value", "said"), WRONG)
def test_bench_with_a_wrong_option_or_nothing_to_measure_exits_2(
    tmp_path: Path, option: str, value: str, said: str
) -> None:
    done = Command(tmp_path, "redis://127.0.0.1:1/0")("bench", option, value)
    assert done.code == 2
    assert said in done.err


def test_bench_with_a_broker_that_is_away_exits_4(tmp_path: Path) -> None:
    with embedded_command(tmp_path) as command:
        away = "amqp://guest:secret@127.0.0.1:1/"
        done = command("bench", "--store", command.url, "--rabbitmq", away, "--only", "idle")
    assert done.code == 4
    assert "duebridge: rabbitmq: AMQPConnectionError" in done.err
    assert "secret" not in done.err


def test_percentile_of_a_share_is_the_value_that_so_many_do_not_exceed() -> None:
    values = [float(each) for each in range(1, 1001)]
    assert percentile(values, 0.5) == 500
    assert percentile(values, 0.999) == 999
    assert percentile(values[:1], 0.99) == 1


def test_bare_rabbitmq_client_closed_leaves_no_queue(rabbitmq_url: str) -> None:
    from duebridge_connectors.rabbitmq.baseline import RabbitBaseline

    parameters = pika.URLParameters(rabbitmq_url)
    client = RabbitBaseline(parameters, f"{SCRATCH}test")
    client.publish_all([b"a", b"b"])
    client.close()
    connection = pika.BlockingConnection(parameters)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        connection.channel().queue_declare(f"{SCRATCH}test", passive=True)
    connection.close()
