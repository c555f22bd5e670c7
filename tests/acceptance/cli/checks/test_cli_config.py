"""`duebridge config`: what is rendered; `check --connect` on real services shows every fault."""

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from kafka import KafkaAdminClient

from tests.support.checkout import ROOT
from tests.support.command import Command, Done
from tests.support.servers import free_port, redis_server

CANARY = "canary-3b9d1e"
CONFIG = f"""\
version: 1
store: {{{{url: "redis://:{CANARY}@localhost:6379/0"}}}}
brokers:
  here:
    type: kafka
    bootstrap_servers: ["localhost:9092"]
    options: {{{{sasl.mechanism: PLAIN, sasl.username: shop, sasl.password: {CANARY}}}}}
  there: {{{{type: rabbitmq, url: "amqp://user:{CANARY}@${{{{THERE}}}}"}}}}
defaults: {{{{max_delay: 30d}}}}
routes:
  reminders: {{{{target: {{{{broker: here, topic: "${{{{TOPIC}}}}"}}}}}}}}
"""
MEMORY = {"here": {"type": "memory"}}
ROUTE = {"a": {"target": {"broker": "here", "topic": "t"}}}


def test_render_prints_what_is_in_effect_without_secrets(tmp_path: Path) -> None:
    command = Command(tmp_path, "", CONFIG)
    wrong = str(tmp_path / "wrong.yaml")  # the argument wins
    done = command("config", "render", str(command.file), TOPIC=CANARY, DUEBRIDGE_CONFIG=wrong)
    assert (done.code, done.err) == (0, "")
    assert CANARY not in done.out
    assert "url: redis://:***@localhost:6379/0\n" in done.out
    assert "url: amqp://user:***@${THERE}\n" in done.out
    assert "max_delay: 30d\n" in done.out
    assert "topic: ${TOPIC}\n" in done.out


def test_render_without_a_variable_exits_2_and_names_it(tmp_path: Path) -> None:
    done = Command(tmp_path, "", CONFIG)("config", "render")
    assert (done.code, done.out) == (2, "")
    place = "duebridge.yaml:11:45 routes.reminders.target.topic"
    assert done.err == f"{place}: variable TOPIC: not set\n"


def test_schema_prints_the_committed_one(tmp_path: Path) -> None:
    committed = (ROOT / "docs" / "duebridge.schema.json").read_text()
    assert Command(tmp_path, "")("config", "schema") == (0, committed, "")


def test_check_of_a_good_file_needs_no_network(tmp_path: Path) -> None:
    command = Command(tmp_path, "redis://127.0.0.1:1/0")
    checked = command("config", "check", "duebridge.yaml")
    assert checked == (0, "duebridge.yaml: ok (routes: 2, brokers: 1)\n", "")
    finding = command("config", "check", "--output", "json").json()
    assert (finding["severity"], finding["found"]) == ("ok", "routes: 2, brokers: 1")


def test_check_of_two_mistakes_exits_2_with_a_line_for_each(tmp_path: Path) -> None:
    command = Command(tmp_path, "redis://127.0.0.1:1/0")
    text = command.file.read_text().replace("topic: reminders", "topc: reminders")
    command.file.write_text(text.replace("shards", "shard"))
    checked = command("config", "check", "duebridge.yaml")
    assert (checked.code, checked.out) == (2, "")
    assert all(line.startswith("duebridge.yaml:") for line in checked.err.splitlines())
    assert "did you mean topic?" in checked.err
    assert "did you mean shards?" in checked.err


def compared(tmp_path: Path, given: str, running: str | None, *words: str, **env: str) -> Done:
    """Check a configuration of this namespace beside a running one of these lines."""
    command = Command(tmp_path, "redis://127.0.0.1:1/0")
    text = command.file.read_text().replace('/0"}', f'/0", namespace: {given}}}')
    command.file.write_text(text)
    if running is not None:
        (tmp_path / "running.yaml").write_text(running)
    return command("config", "check", "duebridge.yaml", "--running", "running.yaml", *words, **env)


@pytest.mark.parametrize(
    ("running", "installed"),
    [
        ("store: {namespace: shop}", "shop"),
        ("store: {url: redis://r}", "duebridge"),  # as releases of 0.2.0 have it
        ("version: 1", "duebridge"),
        ("store: {namespace: '${TEAM}.shop'}\nsetting: of another version", "a.shop"),
        ("store: {namespace: '${NONE:-b}', url: '${UNSET}'}", "b"),
    ],
)
def test_check_beside_running_workers_of_another_namespace_exits_1(
    tmp_path: Path, running: str, installed: str
) -> None:
    done = compared(tmp_path, "other", running, TEAM="a")
    assert (done.code, done.err) == (1, "")
    line = line_of(done, "store.namespace")
    assert line.startswith("failure")
    assert f"expected {installed}, where the running workers' envelopes are" in line
    assert "got other -- restore the namespace" in line
    assert compared(tmp_path, installed, running, TEAM="a").code == 0


def test_check_before_any_worker_runs_compares_nothing(tmp_path: Path) -> None:
    done = compared(tmp_path, "other", None)
    assert (done.code, done.err) == (0, "")
    assert "no worker has a configuration yet" in line_of(done, "store.namespace")


def test_check_beside_a_running_namespace_that_is_not_known_here_exits_2(tmp_path: Path) -> None:
    done = compared(tmp_path, "other", "store: {namespace: '${TEAM}'}")
    assert (done.code, done.out) == (2, "")
    assert done.err == "running.yaml:1:20 store.namespace: variable TEAM: not set\n"


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
    found = {kind: f"{name}-{kind}" for kind in ("good", "dropping", "missing")}
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq_url))
    channel = connection.channel()
    channel.queue_declare(found["good"], durable=True)
    channel.queue_declare(found["dropping"], durable=True, arguments={"x-max-length": 5})
    yield found
    for queue_name in found.values():
        channel.queue_delete(queue_name)
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


Check = Callable[..., Done]


@pytest.fixture
def check(tmp_path: Path, duebridge: Command) -> Check:
    """Check a configuration with its connections; no secret is ever in what that says."""

    def run(
        brokers: dict[str, Any], routes: dict[str, Any], *words: str, url: str = "", **store: Any
    ) -> Done:
        command = Command(tmp_path, "", "")
        config = {"version": 1, "store": {"url": url or duebridge.url, **store}, "brokers": brokers}
        command.file.write_text(json.dumps({**config, "routes": routes}))
        done = command("config", "check", "--connect", *words)
        assert CANARY not in done.out + done.err
        assert done.err == ""
        return done

    return run


def line_of(done: Done, place: str) -> str:
    (line,) = [line for line in done.out.splitlines() if f" {place}: " in line]
    return line


def assert_failures(done: Done, found: dict[str, str]) -> None:
    for place, text in found.items():
        line = line_of(done, place)
        assert line.startswith("failure")
        assert text in line


def test_connect_all_there_exits_0_and_says_what_was_not_checked(
    check: Check, brokers: dict[str, Any], topics: dict[str, str], queues: dict[str, str]
) -> None:
    routes = {
        "a": {"target": topic(topics["good"]), "dead_letter": queue(queues["good"])},
        "b": {"target": exchange("amq.direct"), "allow_targets": [exchange("any-*")]},
    }
    done = check(brokers, routes)
    assert done.code == 0
    assert "max.message.bytes: 1048588" in line_of(done, "routes.a.target")
    assert "not checked: policies, the permission" in line_of(done, "routes.a.dead_letter")
    assert "not checked: bindings, the permission" in line_of(done, "routes.b.target")
    assert done.out.splitlines()[-1] == "failure: 0, warning: 0, ok: 7"


def test_connect_shows_every_fault_and_creates_nothing(
    check: Check, brokers: dict[str, Any], topics: dict[str, str], queues: dict[str, str]
) -> None:
    missing, dropping = queues["missing"], queues["dropping"]
    routes = {
        "a": {"target": topic(topics["missing"]), "dead_letter": topic(topics["small"])},
        "b": {"target": queue(missing), "dead_letter": queue(dropping)},
        "c": {"target": exchange(missing), "allow_targets": [queue(missing)]},
    }
    full = "drops its oldest messages when it is full (x-max-length 5)"
    expected = {
        "routes.a.target": f"topic {topics['missing']} does not exist -- create it",
        "routes.a.dead_letter": f"but max.message.bytes of topic {topics['small']} is 1000",
        "routes.b.target": f"queue '{missing}' does not exist -- declare it",
        "routes.b.dead_letter": full,
        "routes.c.target": f"exchange '{missing}' does not exist -- declare it",
        "routes.c.allow_targets.0": f"queue '{missing}' does not exist",
    }
    for _ in range(2):
        done = check(brokers, routes)
        assert done.code == 4
        assert_failures(done, expected)


def test_connect_a_topic_for_smaller_bodies_exits_1(
    check: Check, brokers: dict[str, Any], topics: dict[str, str]
) -> None:
    routes = {"a": {"target": topic(topics["small"]), "max_body": "2KiB"}}
    done = check(brokers, routes, "--output", "json")
    (finding,) = [each for each in done.json_lines() if each["severity"] != "ok"]
    limit = f"max.message.bytes of topic {topics['small']}"
    assert done.code == 1
    assert finding == {
        "severity": "failure",
        "about": "route",
        "place": "routes.a.target",
        "found": f"max_body is 2048 bytes, but {limit} is 1000",
        "remedy": "raise the limit to 6144, or lower routes.a.max_body",
    }


def test_connect_brokers_that_are_not_there_exit_4_and_none_hides_another(
    check: Check, rabbitmq_url: str, service: Callable[[str, str], str]
) -> None:
    address, redis = f"127.0.0.1:{free_port()}", f"127.0.0.1:{service('redis', 'port')}"
    brokers: dict[str, Any] = {
        "orders": {"type": "kafka", "bootstrap_servers": [address]},
        "mute": {"type": "kafka", "bootstrap_servers": [redis]},
        "away": {"type": "rabbitmq", "url": f"amqp://u:{CANARY}@{address}/"},
        "another": {"type": "rabbitmq", "url": f"amqp://{redis}/"},
        "closed": {"type": "rabbitmq", "url": rabbitmq_url.replace(":guest@", f":{CANARY}@")},
        "nowhere": {"type": "rabbitmq", "url": rabbitmq_url.replace("%2F", "nowhere")},
    }
    routes = {
        name: {"target": exchange("x", name)} for name in ("away", "another", "closed", "nowhere")
    }
    routes |= {name: {"target": {"broker": name, "topic": "t"}} for name in ("orders", "mute")}
    done = check(brokers, routes)
    assert done.code == 4
    expected = {
        "orders": f"no Kafka answers at {address}: KafkaConnectionError: 111 ECONNREFUSED",
        "mute": "RequestTimedOutError",
        "away": f"no RabbitMQ answers at {address}: ConnectionRefusedError",
        "another": "the server there does not speak AMQP",
        "closed": "it refused the user or the password: ACCESS_REFUSED",
        "nowhere": "it refused virtual host 'nowhere': NOT_ALLOWED - vhost nowhere not found",
    }
    assert_failures(done, {f"brokers.{name}": text for name, text in expected.items()})


def test_connect_beside_running_workers_of_another_namespace_shows_all_that_fails(
    check: Check, brokers: dict[str, Any], topics: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "running.yaml").write_text("store: {namespace: shop}")
    routes = {"a": {"target": topic(topics["missing"])}}
    done = check(brokers, routes, "--running", "running.yaml", namespace="other")
    assert done.code == 4
    expected = {"store.namespace": "expected shop", "routes.a.target": topics["missing"]}
    assert_failures(done, expected)


def test_connect_store_that_is_not_there_exits_3_and_brokers_are_asked_all_the_same(
    check: Check, brokers: dict[str, Any], topics: dict[str, str]
) -> None:
    port = free_port()
    url = f"redis://user:{CANARY}@127.0.0.1:{port}/0"
    done = check(brokers, {"a": {"target": topic(topics["missing"])}}, url=url)
    assert done.code == 3
    assert f":{port}" in line_of(done, "store.url")
    expected = {"store.url": "start the server, or fix", "routes.a.target": topics["missing"]}
    assert_failures(done, expected)


def test_connect_server_that_is_not_redis_exits_3(
    check: Check, service: Callable[[str, str], str]
) -> None:
    done = check(MEMORY, ROUTE, url=f"redis://127.0.0.1:{service('rabbitmq', 'port')}/0")
    assert done.code == 3
    assert "expected Redis or Valkey" in line_of(done, "store.url")


def test_connect_unfit_store_exits_3_with_a_finding_for_each_fault(
    check: Check, tmp_path: Path
) -> None:
    with redis_server(tmp_path, "--maxmemory-policy", "allkeys-lru") as port:
        url = f"redis://127.0.0.1:{port}/0"
        done = check(MEMORY, ROUTE, url=url, allow_unfit=["persistence"])
    assert done.code == 3
    failed, warned = sorted(line for line in done.out.splitlines() if " store: " in line)
    assert warned.startswith("warning  store: expected appendonly yes")
    assert failed.startswith("failure  store: expected maxmemory-policy noeviction")
    assert failed.endswith("or allow it: store.allow_unfit: [eviction]")


def test_connect_another_number_of_shards_than_the_store_has_exits_3(
    check: Check, duebridge: Command
) -> None:
    assert duebridge("send", "invoices", "hello", "--delay", "1h").code == 0
    done = check(MEMORY, {"invoices": {**ROUTE["a"], "shards": 4}})
    assert done.code == 3
    expected = "expected shards: 3, as the store has it; got 4"
    assert expected in line_of(done, "routes.invoices.shards")
