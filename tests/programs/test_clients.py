"""Programs that know nothing of duebridge but a few header names.

Those of the delayed-message plugin, before and after the lines that the guide names; what their
exchanges deliver, by each type, under the message's own routing key; and of Kafka.
"""

import json
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.programs.site import WITHIN_S, Open, Site
from tests.programs.toolchains import REMINDERS, go, python
from tests.support.command import wait_until

LONG_MS = 2**32 + 50  # 49 days; in 32 bits 50 ms
# Java's int has 32 bits, and so has a Go int on the wire.
LARGEST = {"amqp-client": 2**31 - 1, "amqp091-go": 2**31 - 1}
SLOW = (pytest.mark.long, pytest.mark.timeout(600))  # they fetch and compile, the first time
CLIENTS = [pytest.param(name, marks=() if name == "pika" else SLOW) for name in REMINDERS]
BINDINGS: dict[str, tuple[str, dict[str, str]]] = {
    "direct": ("mail.eu", {}),
    "topic": ("*.eu", {}),
    "fanout": ("", {}),
    "headers": ("", {"tenant": "a"}),
}
MISSES: dict[str, tuple[str, dict[str, str]]] = {
    "direct": ("mail", {}),
    "topic": ("*.us", {}),
    "headers": ("", {"tenant": "b"}),
}
HELD_MS = 100_000


def command(examples: Path, client: str, which: str) -> list[str]:
    language = REMINDERS[client]
    folder = examples / "rabbitmq-plugin" / language.name
    return language.command(folder, f"{which}/{language.file}")


@pytest.fixture
def site(examples: Path, open_site: Open, rabbitmq_url: str, name: str, rabbit: Any) -> Site:
    return open_site(examples / "rabbitmq-plugin", AMQP_URL=rabbitmq_url, EXCHANGE=name)


@pytest.mark.parametrize("client", CLIENTS)
def test_run_program_for_the_plugin_without_it_is_refused_by_the_broker(
    examples: Path, site: Site, client: str
) -> None:
    refused = site.run([*command(examples, client, "before"), "publish", "1000"])
    assert refused.returncode != 0
    assert "unknown exchange type 'x-delayed-message'" in refused.stdout + refused.stderr


def publish(site: Site, program: list[str], delays: list[int]) -> dict[int, tuple[int, str]]:
    """Return by delay when the program published, epoch ms, and its message_id."""
    lines = site.call([*program, "publish", *map(str, delays)]).splitlines()
    return {int(delay): (int(at), message_id) for at, delay, message_id in map(str.split, lines)}


def pending(site: Site) -> int:
    (route,) = json.loads(site.duebridge("stats", "--output", "json"))["routes"]
    return int(route["pending"])


@pytest.mark.parametrize("client", CLIENTS)
def test_run_changed_program_gets_each_reminder_when_it_is_due(
    examples: Path, site: Site, client: str
) -> None:
    program = command(examples, client, "after")
    site.duebridge("intake", "declare", "reminders")
    site.worker()
    consumer = site.start([*program, "consume"])
    assert consumer.line() == "waiting"
    held = LARGEST.get(client, LONG_MS)
    sent = publish(site, program, [3000, 100, held, 1500])
    due = {sent[delay][1]: delay for delay in (100, 1500, 3000)}
    for _ in range(3):  # in any order, where the intake took the first in long before the last
        got_at, message_id, *rest = consumer.line().split()
        delay = due.pop(message_id)
        assert " ".join(rest) == f"a remind after {delay}"
        assert int(got_at) >= sent[delay][0] + delay
    assert pending(site) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_run_changed_program_with_a_negative_delay_dead_letters_the_reminder(
    examples: Path, site: Site, client: str, name: str, rabbit: Any
) -> None:
    site.duebridge("intake", "declare", "reminders")
    site.worker()
    publish(site, command(examples, client, "after"), [-5])
    letters = rabbit.consume(f"{name}.refused", auto_ack=True, inactivity_timeout=WITHIN_S)
    _, properties, body = next(letters)
    assert body == b"remind after -5"
    assert properties.headers["x-delay"] == -5
    assert properties.headers["x-dlq-reason"] == "invalid"
    assert "x-delay" in properties.headers["x-dlq-error-message"]


def test_publish_reminder_without_a_delay_brings_it_at_once(
    examples: Path, site: Site, name: str, rabbit: Any
) -> None:
    site.duebridge("intake", "declare", "reminders")
    consumer = site.start([*command(examples, "pika", "after"), "consume"])
    assert consumer.line() == "waiting"  # and no `duebridge run` anywhere
    rabbit.basic_publish(name, "mail", b"now", pika.BasicProperties(headers={"tenant": "a"}))
    assert consumer.line().endswith("a now")


def test_cancel_reminder_by_its_message_id_takes_it_out(
    examples: Path, site: Site, name: str, rabbit: Any
) -> None:
    site.duebridge("intake", "declare", "reminders")
    site.worker()
    sent = publish(site, command(examples, "pika", "after"), [LONG_MS])
    wait_until(lambda: pending(site) == 1, "the reminder to be stored")
    cancel = pika.BasicProperties(headers={"x-cancel": sent[LONG_MS][1]})
    rabbit.basic_publish("", f"{name}.intake", b"", cancel)
    wait_until(lambda: pending(site) == 0, "the reminder to be cancelled")


def bound(rabbit: Any, exchange: str, binding: tuple[str, dict[str, str]]) -> str:
    """Bind a queue of the connection's own."""
    queue = str(rabbit.queue_declare("", exclusive=True).method.queue)
    rabbit.queue_bind(queue, exchange, *binding)
    return queue


@pytest.mark.parametrize("kind", BINDINGS)
def test_publish_to_a_declared_exchange_arrives_where_its_type_routes_its_own_key(
    examples: Path, open_site: Open, rabbitmq_url: str, name: str, rabbit: Any, kind: str
) -> None:
    home = examples / "rabbitmq-plugin"
    site = open_site(home, AMQP_URL=rabbitmq_url, EXCHANGE=name)
    given = (home / "duebridge.yaml").read_text()
    config = home / f"{name}.yaml"  # the route's own target has the key `mail`, no message has
    config.write_text(given.replace("type: direct", f"type: {kind}"))
    site.duebridge("--config", str(config), "intake", "declare", "reminders")
    hit = bound(rabbit, f"{name}.due", BINDINGS[kind])
    missed = bound(rabbit, f"{name}.due", MISSES[kind]) if kind in MISSES else ""
    site.worker("--config", str(config))
    delayed = {"x-delay": 100, "tenant": "a"}
    properties = pika.BasicProperties(headers=delayed, message_id="m-1")
    rabbit.basic_publish(name, "mail.eu", b"remind", properties)

    method, got, body = next(rabbit.consume(hit, auto_ack=True, inactivity_timeout=WITHIN_S))
    assert (method.exchange, method.routing_key) == (f"{name}.due", "mail.eu")
    assert (body, got.message_id, got.headers["tenant"]) == (b"remind", "m-1", "a")
    if missed:  # the broker has routed the one message to every queue by now
        assert rabbit.queue_declare(missed, passive=True).method.message_count == 0


@pytest.mark.long
@pytest.mark.timeout(600)  # Go compiles its Kafka client, the first time
@pytest.mark.parametrize(
    ("client", "own"), [("franz-go", "kafka-python"), ("kafka-python", "librdkafka")]
)
def test_send_reminders_from_a_kafka_client_brings_each_when_it_is_due(
    examples: Path,
    open_site: Open,
    kafka_bootstrap: str,
    name: str,
    topics: Any,
    client: str,
    own: str,
) -> None:
    folder = examples / "kafka-delays"
    site = open_site(folder, KAFKA=kafka_bootstrap, TOPIC=name, KAFKA_CLIENT=own)
    consumer = go(folder, "./later.go")
    publish = [*consumer, "publish"] if client == "franz-go" else python(folder, "later.py")
    site.worker()
    reader = site.start([*consumer, "consume"])
    sent = {}
    for line in site.call([*publish, "3000", "100", str(HELD_MS), "1500"]).splitlines():
        due_at, body = line.split(" ", 1)
        sent[body] = int(due_at)
    due = {f"remind after {delay}" for delay in (100, 1500, 3000)}
    while due:  # in any order, where the intake took the first in long before the last
        got_at, rest = reader.line().split(" ", 1)
        body = rest.removesuffix(" customer-7 a")
        due.remove(body)
        assert int(got_at) >= sent[body]
