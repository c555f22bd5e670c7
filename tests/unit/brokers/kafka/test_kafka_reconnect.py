"""How soon a Kafka source connects again."""

import threading

from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.kafka.source.reconnect_backoff import ReconnectBackoff


def test_wait_that_is_cut_short_does_not_put_the_next_attempt_off() -> None:
    backoff = ReconnectBackoff(threading.Event())
    backoff.failed(BrokerUnavailable("refused"))
    for _ in range(10):  # a source is asked more often than it may connect
        try:
            backoff.wait(0.0)
        except BrokerUnavailable as error:
            backoff.failed(error)
    backoff.wait(1.0)
