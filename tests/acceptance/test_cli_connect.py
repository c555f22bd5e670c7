"""`config check --connect` on real services: every fault is shown, and decides the exit code."""

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from kafka import KafkaAdminClient

from tests.support.command import Command, Done, embedded_command
from tests.support.servers import free_port, redis_server

CANARY = "canary-3b9d1e"
MEMORY = {"here": {"type": "memory"}}
ROUTE = {"a": {"target": {"broker": "here", "topic": "t"}}}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_command(tmp_path_factory.mktemp("connect")) as command:
        yield command.url


@pytest.fixture(scope="module")
def topics(kafka_bootstrap: str) -> Iterator[dict[str, str]]:
    """Topics by what is the matter with them."""
    name = f"connect-{secrets.token_hex(6)}"
    plain = {"num_partitions": 1, "replication_factor": 1}
    small = {**plain, "configs": {"max.message.bytes": "1000"}}
    admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    wanted = {f"{name}-good": plain, f"{name}-small": small}
    admin.create_topics(wanted, wait_for_metadata=True)
    yield {kind: f"{name}-{kind}" for kind in ("good", "small", "missing")}
    admin.delete_topics(list(wanted))
    admin.close()


@pytest.fixture(scope="module")
def queues(rabbitmq_url: str) -> Iterator[dict[str, str]]:
    """Queues by what is the matter with them."""
    name = f"connect-{secrets.token_hex(6)}"
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq_url))
    channel = connection.channel()
    channel.queue_declare(f"{name}-good", durable=True)
    channel.queue_declare(f"{name}-dropping", durable=True, arguments={"x-max-length": 5})
    yield {kind: f"{name}-{kind}" for kind in ("good", "dropping", "missing")}
    for kind in ("good", "dropping", "missing"):
        channel.queue_delete(f"{name}-{kind}")
    connection.close()


@pytest.fixture
def brokers(kafka_bootstrap: str, rabbitmq_url: str) -> dict[str, Any]:
    return {
        "orders": {"type": "kafka", "bootstrap_servers": [kafka_bootstrap]},
        "billing": {"type": "rabbitmq", "url": rabbitmq_url},
    }


def topic(name: str) -> dict[str, str]:
    return {"broker": "orders", "topic": name}


def queue(name: str) -> dict[str, str]:
    return {"broker": "billing", "exchange": "", "routing_key": name}


def exchange(name: str, broker: str = "billing") -> dict[str, str]:
    return {"broker": broker, "exchange": name, "routing_key": "k"}


def checked(
    home: Path, store: dict[str, Any], brokers: dict[str, Any], routes: dict[str, Any], *words: str
) -> Done:
    """Return how the check of a configuration ended; no secret is ever in what it says."""
    command = Command(home, "", "")
    config = {"version": 1, "store": store, "brokers": brokers, "routes": routes}
    command.file.write_text(json.dumps(config))
    done = command("config", "check", "--connect", *words)
    assert CANARY not in done.out + done.err
    assert done.err == ""
    return done


def line_of(done: Done, place: str) -> str:
    (line,) = [line for line in done.out.splitlines() if f" {place}: " in line]
    return line


def test_connect_all_there_exits_0_and_says_what_was_not_checked(
    tmp_path: Path,
    url: str,
    brokers: dict[str, Any],
    topics: dict[str, str],
    queues: dict[str, str],
) -> None:
    routes = {
        "a": {"target": topic(topics["good"]), "dead_letter": queue(queues["good"])},
        "b": {"target": exchange("amq.direct"), "allow_targets": [exchange("any-*")]},
    }
    done = checked(tmp_path, {"url": url}, brokers, routes)
    assert done.code == 0
    assert "max.message.bytes: 1048588" in line_of(done, "routes.a.target")
    assert "not checked: policies, the permission" in line_of(done, "routes.a.dead_letter")
    assert "not checked: bindings, the permission" in line_of(done, "routes.b.target")
    assert done.out.splitlines()[-1] == "failure: 0, warning: 0, ok: 7"


def test_connect_shows_every_fault_and_a_missing_target_decides(
    tmp_path: Path,
    url: str,
    brokers: dict[str, Any],
    topics: dict[str, str],
    queues: dict[str, str],
) -> None:
    missing, dropping = queues["missing"], queues["dropping"]
    routes = {
        "a": {"target": topic(topics["missing"]), "dead_letter": topic(topics["small"])},
        "b": {"target": queue(missing), "dead_letter": queue(dropping)},
        "c": {"target": exchange(missing), "allow_targets": [queue(missing)]},
    }
    done = checked(tmp_path, {"url": url}, brokers, routes)
    assert done.code == 4
    for place, found in (
        ("routes.a.target", f"topic {topics['missing']} does not exist -- create it"),
        ("routes.a.dead_letter", f"but max.message.bytes of topic {topics['small']} is 1000"),
        ("routes.b.target", f"queue '{missing}' does not exist -- declare it"),
        ("routes.b.dead_letter", "drops its oldest messages when it is full (x-max-length 5)"),
        ("routes.c.target", f"exchange '{missing}' does not exist -- declare it"),
        ("routes.c.allow_targets.0", f"queue '{missing}' does not exist"),
    ):
        line = line_of(done, place)
        assert line.startswith("failure")
        assert found in line


def test_connect_creates_no_topic_and_no_queue(
    tmp_path: Path,
    url: str,
    brokers: dict[str, Any],
    topics: dict[str, str],
    queues: dict[str, str],
) -> None:
    routes = {"a": {"target": topic(topics["missing"]), "dead_letter": queue(queues["missing"])}}
    first = checked(tmp_path, {"url": url}, brokers, routes)
    assert checked(tmp_path, {"url": url}, brokers, routes) == first
    assert first.out.count("does not exist") == 2


def test_connect_a_topic_for_smaller_bodies_exits_1(
    tmp_path: Path, url: str, brokers: dict[str, Any], topics: dict[str, str]
) -> None:
    routes = {"a": {"target": topic(topics["small"]), "max_body": "2KiB"}}
    done = checked(tmp_path, {"url": url}, brokers, routes, "--output", "json")
    (finding,) = [each for each in done.json_lines() if each["severity"] != "ok"]
    limit = f"max.message.bytes of topic {topics['small']}"
    assert done.code == 1
    assert finding == {
        "severity": "failure",
        "about": "route",
        "place": "routes.a.target",
        "found": f"max_body is 2048 bytes, but {limit} is 1000",
        "remedy": "make the one at least 6144, or routes.a.max_body smaller",
    }


def test_connect_brokers_that_are_not_there_exit_4_and_none_hides_another(
    tmp_path: Path, url: str, rabbitmq_url: str
) -> None:
    address = f"127.0.0.1:{free_port()}"
    brokers: dict[str, Any] = {
        "orders": {"type": "kafka", "bootstrap_servers": [address]},
        "away": {"type": "rabbitmq", "url": f"amqp://u:{CANARY}@{address}/"},
        "closed": {"type": "rabbitmq", "url": rabbitmq_url.replace(":guest@", f":{CANARY}@")},
        "nowhere": {"type": "rabbitmq", "url": rabbitmq_url.replace("%2F", "nowhere")},
    }
    routes = {name: {"target": exchange("x", name)} for name in ("away", "closed", "nowhere")}
    done = checked(tmp_path, {"url": url}, brokers, {**routes, "orders": {"target": topic("t")}})
    assert done.code == 4
    for name, found in (
        ("orders", "no Kafka answers: KafkaConnectionError: 111 ECONNREFUSED -- start it"),
        ("away", "no RabbitMQ answers: ConnectionRefusedError"),
        ("closed", "it refused the user or the password -- mend them in url"),
        ("nowhere", "there is no virtual host 'nowhere'"),
    ):
        line = line_of(done, f"brokers.{name}")
        assert line.startswith("failure")
        assert found in line


def test_connect_broker_of_another_kind_exits_4(
    tmp_path: Path, url: str, service: Callable[[str, str], str]
) -> None:
    address = f"127.0.0.1:{service('redis', 'port')}"
    brokers: dict[str, Any] = {
        "orders": {"type": "kafka", "bootstrap_servers": [address]},
        "billing": {"type": "rabbitmq", "url": f"amqp://{address}/"},
    }
    routes = {"a": {"target": topic("t"), "dead_letter": exchange("x")}}
    done = checked(tmp_path, {"url": url}, brokers, routes)
    assert done.code == 4
    assert "RequestTimedOutError" in line_of(done, "brokers.orders")
    assert "nobody says AMQP there" in line_of(done, "brokers.billing")


def test_connect_settings_that_no_client_takes_exit_2(
    tmp_path: Path, url: str, rabbitmq_url: str
) -> None:
    broker = {"type": "rabbitmq", "url": "${NO_SUCH_URL}"}
    done = checked(tmp_path, {"url": url}, {"billing": broker}, {"a": {"target": exchange("x")}})
    assert done.code == 2
    assert "NO_SUCH_URL" in line_of(done, "brokers.billing")


def test_connect_store_that_is_not_there_exits_3_and_brokers_are_asked_all_the_same(
    tmp_path: Path, brokers: dict[str, Any], topics: dict[str, str]
) -> None:
    port = free_port()
    store = {"url": f"redis://user:{CANARY}@127.0.0.1:{port}/0"}
    done = checked(tmp_path, store, brokers, {"a": {"target": topic(topics["missing"])}})
    assert done.code == 3
    assert f":{port}" in line_of(done, "store.url")
    assert "start the server, or mend store.url" in line_of(done, "store.url")
    assert line_of(done, "routes.a.target").startswith("failure")


def test_connect_server_that_is_not_redis_exits_3(
    tmp_path: Path, service: Callable[[str, str], str]
) -> None:
    store = {"url": f"redis://127.0.0.1:{service('rabbitmq', 'port')}/0"}
    done = checked(tmp_path, store, MEMORY, ROUTE)
    assert done.code == 3
    assert "expected Redis or Valkey" in line_of(done, "store.url")


def test_connect_wrong_password_of_the_store_exits_3(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--requirepass", "right") as port:
        done = checked(tmp_path, {"url": f"redis://:{CANARY}@127.0.0.1:{port}/0"}, MEMORY, ROUTE)
    assert done.code == 3
    assert "its user and password" in line_of(done, "store.url")


def test_connect_unfit_store_exits_3_with_a_finding_for_each_fault(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--maxmemory-policy", "allkeys-lru") as port:
        store = {"url": f"redis://127.0.0.1:{port}/0", "allow_unfit": ["persistence"]}
        done = checked(tmp_path, store, MEMORY, ROUTE)
    assert done.code == 3
    warned, failed = sorted(
        (line for line in done.out.splitlines() if " store: " in line), reverse=True
    )
    assert warned.startswith("warning  store: expected appendonly yes")
    assert failed.startswith("failure  store: expected maxmemory-policy noeviction")
    assert failed.endswith("or allow it: store.allow_unfit: [eviction]")


def test_connect_another_number_of_shards_than_the_store_has_exits_3(tmp_path: Path) -> None:
    with embedded_command(tmp_path) as command:
        assert command("send", "invoices", "hello", "--delay", "1h").code == 0
        routes = {"invoices": {"target": {"broker": "here", "topic": "t"}, "shards": 4}}
        done = checked(tmp_path, {"url": command.url}, MEMORY, routes)
    assert done.code == 3
    line = line_of(done, "routes.invoices.shards")
    assert "expected shards: 3, as the store has it; got 4" in line


def test_check_as_json_without_connect_is_one_finding(tmp_path: Path) -> None:
    command = Command(tmp_path, "redis://127.0.0.1:1/0")
    done = command("config", "check", "--output", "json")
    assert done.code == 0
    assert done.json()["severity"] == "ok"
    assert done.json()["found"] == "routes: 2, brokers: 1"
