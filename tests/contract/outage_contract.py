"""The broker answers, or it does not, or the publisher is closed."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import BrokerUnavailable, Publisher, Verdict
from tests.support.contract.broker_under_test import BrokerUnderTest, delivery, verdicts
from tests.support.network.proxy import proxied
from tests.support.running_clock import ends_within
from tests.support.servers import free_port, silent_listener

SHORT_DEADLINE_S = 2.0
MARGIN_S = 1.0
MOST_CONNECTIONS = 8  # within one ping


class OutageContract:
    """Absent, silent and closed."""

    def test_publish_nothing_to_a_broker_that_answers_returns_nothing(
        self, publisher: Publisher
    ) -> None:
        publisher.ping()

    def test_publish_nothing_to_an_absent_broker_raises(self, broker: BrokerUnderTest) -> None:
        with closing(broker.open_at(free_port(), SHORT_DEADLINE_S)) as publisher:
            self._raises_in_time(publisher)

    def test_publish_nothing_to_a_silent_broker_raises(self, broker: BrokerUnderTest) -> None:
        with (
            silent_listener() as port,
            closing(broker.open_at(port, SHORT_DEADLINE_S)) as publisher,
        ):
            self._raises_in_time(publisher)

    def test_ping_a_broker_that_ends_each_connection_reconnects_seldom(
        self, broker: BrokerUnderTest
    ) -> None:
        with proxied(free_port()) as proxy:
            proxy.refuse(1000)
            with closing(broker.open_at(proxy.port, SHORT_DEADLINE_S)) as publisher:
                self._raises_in_time(publisher)
            assert proxy.refused <= MOST_CONNECTIONS

    def test_publish_to_an_absent_broker_is_unavailable_within_the_deadline(
        self, broker: BrokerUnderTest
    ) -> None:
        with closing(broker.open_at(free_port(), SHORT_DEADLINE_S)) as publisher:
            found = self._publish_in_time(publisher, broker.missing_target())
        assert found == {Verdict.UNAVAILABLE}

    def test_publish_to_a_silent_broker_ends_at_the_deadline_unconfirmed(
        self, broker: BrokerUnderTest
    ) -> None:
        with (
            silent_listener() as port,
            closing(broker.open_at(port, SHORT_DEADLINE_S)) as publisher,
        ):
            found = self._publish_in_time(publisher, broker.missing_target())
        assert found <= {Verdict.UNAVAILABLE, Verdict.INDETERMINATE}

    def test_publish_by_several_threads_to_an_absent_broker_ends_at_the_deadline(
        self, broker: BrokerUnderTest
    ) -> None:
        target = broker.missing_target()
        with (
            closing(broker.open_at(free_port(), SHORT_DEADLINE_S)) as publisher,
            ThreadPoolExecutor(4) as pool,
        ):
            runs = [pool.submit(self._publish_in_time, publisher, target) for _ in range(4)]
            assert [run.result() for run in runs] == [{Verdict.UNAVAILABLE}] * 4

    def _raises_in_time(self, publisher: Publisher) -> None:
        with ends_within(SHORT_DEADLINE_S + MARGIN_S), pytest.raises(BrokerUnavailable):
            publisher.ping()

    def _publish_in_time(self, publisher: Publisher, target: Target) -> set[Verdict]:
        with ends_within(SHORT_DEADLINE_S + MARGIN_S):
            outcomes = publisher.publish([delivery(target) for _ in range(10)])
        assert len(outcomes) == 10
        return set(verdicts(outcomes))

    # Closing.

    def test_close_twice_does_no_harm(self, publisher: Publisher, target: Target) -> None:
        assert verdicts(publisher.publish([delivery(target)])) == [Verdict.CONFIRMED]
        publisher.close()
        publisher.close()

    def test_close_unused_does_no_harm(self, broker: BrokerUnderTest) -> None:
        broker.open(SHORT_DEADLINE_S).close()

    def test_publish_after_close_is_unavailable(self, publisher: Publisher, target: Target) -> None:
        publisher.close()
        assert verdicts(publisher.publish([delivery(target)])) == [Verdict.UNAVAILABLE]
        with pytest.raises(BrokerUnavailable):
            publisher.ping()
