"""The connection's thread: how it comes back, and what a defect in it does."""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from duebridge.envelope import Target
from duebridge.ports.publisher import Delivery, Outcome, Verdict
from duebridge_connectors.rabbitmq import RabbitPublisher
from duebridge_connectors.rabbitmq.batch import Batch
from duebridge_connectors.rabbitmq.link import FIRST_DELAY_S, MOST_DELAY_S, Link
from duebridge_connectors.rabbitmq.settings import connection_parameters
from tests.contract.listeners import free_port

STEP_S = 10.0


@pytest.fixture
def absent() -> Iterator[Link]:
    """Give a link to nobody, that has tried already."""
    tried = threading.Event()

    def never_again(_: float, most: float) -> float:
        tried.set()
        return most + 3600

    link = Link(connection_parameters({"url": f"amqp://127.0.0.1:{free_port()}/"}), never_again)
    with closing(link):
        assert tried.wait(STEP_S)
        yield link


def test_reconnect_to_nobody_doubles_the_delay_up_to_the_most() -> None:
    asked: list[tuple[float, float]] = []
    enough = threading.Event()

    def at_once(least: float, most: float) -> float:
        asked.append((least, most))
        if len(asked) == 8:
            enough.set()
        return 0.0

    parameters = connection_parameters({"url": f"amqp://127.0.0.1:{free_port()}/"})
    with closing(Link(parameters, at_once)):
        assert enough.wait(STEP_S)
    mosts = [most for _, most in asked]
    assert mosts[:4] == [FIRST_DELAY_S * 2**n for n in range(4)]
    assert mosts[4:8] == [MOST_DELAY_S] * 4
    assert all(least == most / 2 for least, most in asked)


def test_carry_between_two_tries_is_refused_at_once_with_the_cause(absent: Link) -> None:
    (outcome,) = absent.carry(Batch(1), seconds=STEP_S)
    assert outcome.verdict is Verdict.UNAVAILABLE
    assert outcome.error_class == "ConnectionRefusedError"


def test_carry_after_close_is_refused_at_once(absent: Link) -> None:
    absent.close()
    absent.close()
    assert not absent.is_alive
    assert absent.carry(Batch(1), seconds=STEP_S)[0].verdict is Verdict.UNAVAILABLE


class Faulty(Batch):
    """Breaks whoever settles it."""

    def settle_rest(self, outcome: Outcome) -> None:
        raise RuntimeError(outcome)


def test_break_down_of_the_thread_is_logged_and_ends_the_link(absent: Link) -> None:
    with capture_logs() as logs:
        outcomes = absent.carry(Faulty(1), seconds=0.1)
        absent.close()
    assert [entry["event"] for entry in logs] == ["rabbitmq_thread_failed"]
    assert outcomes[0].verdict is Verdict.UNAVAILABLE
    assert not absent.is_alive


def test_publish_to_a_topic_is_rejected_without_a_connection() -> None:
    parameters = connection_parameters({"url": f"amqp://127.0.0.1:{free_port()}/"})
    publisher = RabbitPublisher(parameters, STEP_S)
    kafka = Delivery("id", Target("x", topic="t"), b"")
    with closing(publisher):
        assert publisher.publish([kafka])[0].verdict is Verdict.REJECTED
