"""What an intake delivers through each type of exchange, under the message's own routing key."""

from pathlib import Path
from typing import Any

import pika
import pytest

from tests.programs.site import WITHIN_S, Open

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
