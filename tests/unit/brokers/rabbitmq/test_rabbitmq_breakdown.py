"""What remains of RabbitMQ's thread that an unforeseen error ended: no socket, one traceback."""

import gc
import os
import time
from collections.abc import Iterator, MutableMapping
from contextlib import closing, suppress
from typing import Any

import pytest
from pika.connection import Parameters
from structlog.testing import capture_logs

from duebridge.envelope import Target
from duebridge.ports.publisher import Delivery, Verdict
from duebridge_connectors.rabbitmq.publishing.batch import PublishBatch
from duebridge_connectors.rabbitmq.publishing.link import Link
from duebridge_connectors.rabbitmq.publishing.publisher import RabbitPublisher
from duebridge_connectors.rabbitmq.settings import connection_parameters
from tests.support.servers import free_port

STEP_S = 10.0


@pytest.fixture
def failing() -> Iterator[Parameters]:
    """Give parameters that fail a thread beside the socket that it has opened."""
    parameters = connection_parameters({"url": f"amqp://127.0.0.1:{free_port()}/"})
    parameters.tcp_options = {"TCP_KEEPIDLE": 0}
    gc.collect()
    gc.disable()
    yield parameters
    gc.enable()


def test_break_down_of_the_thread_closes_its_socket_and_refuses_what_waits(
    failing: Parameters,
) -> None:
    before = sockets()
    with capture_logs(), closing(Link(failing)) as link:
        (outcome,) = link.publish(PublishBatch(1), seconds=STEP_S)
    assert outcome.verdict is Verdict.UNAVAILABLE
    assert outcome.error_class != "NotSent", "it need not wait for the deadline"
    assert not sockets() - before


def sockets() -> set[str]:
    """Return the sockets of this process; what other tests left may be closed at any moment."""
    return {name for name in map(target_of, os.listdir("/proc/self/fd")) if "socket" in name}


def target_of(number: str) -> str:
    with suppress(FileNotFoundError):
        return os.readlink(f"/proc/self/fd/{number}")
    return ""


def levels(logs: list[MutableMapping[str, Any]]) -> list[str]:
    return [entry["log_level"] for entry in logs if entry["event"] == "rabbitmq_thread_failed"]


def test_break_down_of_thread_after_thread_is_logged_once_with_a_traceback(
    failing: Parameters,
) -> None:
    delivery = Delivery("id", Target("x", exchange="", routing_key="q"), b"")
    give_up_at = time.monotonic() + STEP_S
    with capture_logs() as logs, closing(RabbitPublisher(failing, STEP_S)) as publisher:
        while len(levels(logs)) < 3 and time.monotonic() < give_up_at:
            assert publisher.publish([delivery])[0].verdict is Verdict.UNAVAILABLE
    assert levels(logs)[:3] == ["error", "debug", "debug"]
