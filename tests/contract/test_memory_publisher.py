"""The test double keeps the contract that it stands in for, and does what a test tells it to."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from duebridge.envelope import Target
from duebridge.errors import ConfigError
from duebridge.ports.publisher import Delivery, Outcome, Verdict
from duebridge_connectors.memory import MemoryPublisher, open_publisher
from tests.contract.memory_broker import MemoryBroker
from tests.contract.publisher_contract import PublisherContract
from tests.support.contract.broker_under_test import delivery, verdicts

TARGET = Target("memory", topic="t")


class TestMemoryPublisher(PublisherContract):
    @pytest.fixture
    def broker(self) -> MemoryBroker:
        return MemoryBroker()


def test_publish_with_a_script_returns_its_outcomes_and_keeps_the_confirmed() -> None:
    failed = Outcome(Verdict.FAILED, error_class="Nack", error_message="later")
    publisher = MemoryPublisher()
    publisher.script(lambda d: failed if d.body == b"bad" else None)
    good, bad = delivery(TARGET), delivery(TARGET, b"bad")
    assert verdicts(publisher.publish([good, bad])) == [Verdict.CONFIRMED, Verdict.FAILED]
    assert publisher.delivered == [good]


def test_publish_while_paused_waits_for_resume() -> None:
    publisher = MemoryPublisher()
    publisher.pause()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(publisher.publish, [delivery(TARGET), delivery(TARGET)])
        assert publisher.deliveries_wait(2, within_s=5)
        assert publisher.delivered == []
        publisher.resume()
        assert verdicts(run.result(5)) == [Verdict.CONFIRMED] * 2
    assert publisher.waiting == 0


def test_publish_nothing_while_paused_answers_at_once() -> None:
    publisher = MemoryPublisher(publish_deadline_s=60)
    publisher.pause()
    publisher.ping()


def test_publish_while_paused_past_the_deadline_is_indeterminate() -> None:
    publisher = MemoryPublisher(publish_deadline_s=0.01)
    publisher.pause()
    assert verdicts(publisher.publish([delivery(TARGET)])) == [Verdict.INDETERMINATE]


def test_close_while_paused_makes_what_waits_indeterminate() -> None:
    publisher = MemoryPublisher()
    publisher.pause()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(publisher.publish, [delivery(TARGET)])
        assert publisher.deliveries_wait(1, within_s=5)
        publisher.close()
        assert verdicts(run.result(5)) == [Verdict.INDETERMINATE]


def test_deliveries_arrive_reports_the_count_or_the_time() -> None:
    publisher = MemoryPublisher()
    batch: list[Delivery] = [delivery(TARGET) for _ in range(3)]
    with ThreadPoolExecutor(1) as pool:
        arrived = pool.submit(publisher.deliveries_arrive, 3, 5)
        publisher.publish(batch)
        assert arrived.result(5)
    assert not publisher.deliveries_arrive(4, within_s=0.01)


def test_open_by_name_twice_shares_what_was_delivered() -> None:
    first = open_publisher({"type": "memory", "options": {"name": "shared"}}, 1.0)
    first.publish([delivery(TARGET)])
    first.close()
    second = open_publisher({"type": "memory", "options": {"name": "shared"}}, 1.0)
    assert verdicts(second.publish([delivery(TARGET)])) == [Verdict.CONFIRMED]
    assert len(MemoryPublisher.named("shared").delivered) == 2


def test_open_with_an_unknown_key_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"options\.url: unknown option"):
        open_publisher({"type": "memory", "options": {"url": "x"}}, 1.0)
