"""An intake that declares its topology, and what its check says of it."""

import secrets
from typing import Any

import pika

from duebridge.envelope import Target
from duebridge.ports.checks import Finding, Severity
from duebridge.ports.source import SourcePlan
from duebridge_connectors.rabbitmq.broker import RABBITMQ

DEADLINE_S = 10.0
DELAYED = pika.BasicProperties(headers={"x-delay": 5000})


class Names:
    """An intake of its own: its exchange, queue and dead-letter queue."""

    def __init__(self) -> None:
        end = secrets.token_hex(6)
        self.exchange, self.queue = f"delayed-{end}", f"delayed.intake-{end}"
        self.letters = f"delayed.dead-{end}"

    def plan(self, kind: str = "direct", **changes: Any) -> SourcePlan:
        given: dict[str, Any] = {
            "source": {"queue": self.queue},
            "declare": {"exchange": self.exchange, "type": kind},
            "dead_letter": Target("billing", exchange="", routing_key=self.letters),
        }
        return SourcePlan("from-plugin", "billing", **{**given, **changes})

    def delete(self, channel: Any) -> None:
        channel.exchange_delete(self.exchange)
        channel.exchange_delete(f"{self.exchange}.due")
        channel.queue_delete(self.queue)
        channel.queue_delete(self.letters)


def failures(found: list[Finding]) -> list[str]:
    return [each.found for each in found if each.severity is Severity.FAILURE]


def examined(url: str, plan: SourcePlan) -> list[Finding]:
    return RABBITMQ.examine_source("intakes.from-plugin", {"url": url}, plan, DEADLINE_S)
