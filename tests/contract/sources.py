"""The contract of `duebridge.ports.source.Source`, passed on every real broker.

A connector's test file has a subclass of `SourceContract` with a fixture `broker` that returns a
`SourceUnderTest`, which deletes what it made at the end.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from duebridge.errors import ConfigError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Source
from tests.support.contract.source_under_test import (
    WAIT_S,
    WITHIN_S,
    SourceUnderTest,
    bodies,
    is_quiet,
    numbered,
    received,
    settled,
)
from tests.support.running_clock import ends_within
from tests.support.servers import free_port, silent_listener, wait_until

MARGIN_S = 2.0
MOST_S = 20.0  # of a call to a broker that does not answer


class QueueContract:
    """The part of the contract that each kind of queue or log has to pass by itself."""

    @pytest.fixture
    def name(self, broker: SourceUnderTest) -> str:
        return broker.create()

    @pytest.fixture
    def source(self, broker: SourceUnderTest, name: str) -> Iterator[Source]:
        with closing(broker.open(name)) as source:
            yield source

    # Taking in.

    def test_receive_of_many_messages_keeps_their_order(
        self, broker: SourceUnderTest, name: str
    ) -> None:
        sent = numbered(2500)
        broker.send(name, sent)
        with closing(broker.open(name, batch=100)) as source:
            assert bodies(settled(source, len(sent))) == sent

    def test_receive_returns_at_most_a_batch(self, broker: SourceUnderTest, name: str) -> None:
        broker.send(name, numbered(50))
        with closing(broker.open(name, batch=7)) as source:
            sizes = []
            while sum(sizes) < 50:
                batch = received(source)
                source.settle(batch)
                sizes.append(len(batch))
        assert max(sizes) <= 7

    def test_receive_returns_at_most_the_bytes_of_a_batch_or_one_message(
        self, broker: SourceUnderTest, name: str
    ) -> None:
        sent = [*numbered(20, 1000), bytes(9000), *numbered(20, 1000)]
        broker.send(name, sent)
        with closing(broker.open(name, batch_bytes=4000)) as source:
            found = []
            while len(found) < len(sent):
                batch = received(source)
                source.settle(batch)
                assert len(batch) == 1 or sum(len(each.body or b"") for each in batch) <= 4000
                found += bodies(batch)
        assert found == sent

    def test_receive_of_nothing_returns_in_time(self, source: Source, name: str) -> None:
        source.receive(WAIT_S)  # it connects
        with ends_within(WAIT_S + MARGIN_S):
            assert list(source.receive(WAIT_S)) == []

    def test_receive_while_it_waits_returns_what_comes(
        self, broker: SourceUnderTest, source: Source, name: str
    ) -> None:
        source.receive(WAIT_S)
        later = threading.Timer(0.1, broker.send, [name, [b"late"]])
        later.start()
        assert bodies(received(source)) == [b"late"]
        later.join()

    # Settling.

    def test_settled_messages_do_not_come_again(self, broker: SourceUnderTest, name: str) -> None:
        broker.send(name, numbered(20))
        with closing(broker.open(name)) as source:
            settled(source, 20)
        with closing(broker.open(name)) as source:
            assert is_quiet(source)

    def test_messages_that_were_not_settled_come_again_with_the_same_ids(
        self, broker: SourceUnderTest, name: str
    ) -> None:
        broker.send(name, numbered(20))
        with closing(broker.open(name, batch=10)) as source:
            first = settled(source, 10)
            second = received(source)
        with closing(broker.open(name, batch=10)) as source:
            again = settled(source, 20 - len(first))
        assert bodies([*first, *again]) == numbered(20)
        seen = [(each.id, each.place) for each in second]
        assert [(each.id, each.place) for each in again][: len(second)] == seen

    def test_give_back_brings_again_what_was_not_settled_and_nothing_else(
        self, broker: SourceUnderTest, name: str
    ) -> None:
        broker.send(name, numbered(20))
        with closing(broker.open(name, batch=10)) as source:
            first = settled(source, 10)
            lost = received(source)
            source.give_back()
            again = settled(source, 20 - len(first))
            assert is_quiet(source)
        assert bodies([*first, *again]) == numbered(20)
        assert [each.id for each in again][: len(lost)] == [each.id for each in lost]

    # Outages.

    def test_a_lost_connection_repeats_what_was_not_settled_and_nothing_else(
        self, broker: SourceUnderTest, name: str
    ) -> None:
        broker.send(name, numbered(20))
        with closing(broker.open(name, batch=10)) as source:
            settled(source, 10)
            unsettled = received(source)
            broker.disconnect(source)
            try:  # its answer may be lost: then they come again
                source.settle(unsettled)
                source.receive(WAIT_S)
            except BrokerUnavailable:
                pass
            broker.send(name, [b"last"])
            found: list[bytes | None] = []
            while b"last" not in found:
                found += bodies(settled(source, 1))
        assert set(found) <= {*numbered(20)[10:], b"last"}

    def test_receive_after_a_lost_connection_connects_again(
        self, broker: SourceUnderTest, source: Source, name: str
    ) -> None:
        broker.send(name, [b"before"])
        settled(source, 1)
        broker.disconnect(source)
        broker.send(name, [b"after"])
        while b"after" not in bodies(received(source)):
            pass  # the one before it, whose settling may have been lost

    def test_receive_from_a_missing_one_raises_config_error(self, broker: SourceUnderTest) -> None:
        name = broker.missing()
        with closing(broker.open(name)) as source, pytest.raises(ConfigError, match=name):
            source.receive(WITHIN_S)

    def test_lag_becomes_the_number_of_messages_that_wait(
        self, broker: SourceUnderTest, name: str
    ) -> None:
        broker.send(name, numbered(40))
        with closing(broker.open(name, batch=10, in_hand=10)) as source:
            batch = received(source)

            def lag() -> int | None:
                source.keep_alive()
                return source.lag()

            wait_until(lambda: 0 < (lag() or 0) <= 40, "the lag of what waits")
            source.settle(batch)
            settled(source, 40 - len(batch))

            def is_zero() -> bool:
                source.receive(0.05)
                return source.lag() == 0

            wait_until(is_zero, "the lag of a queue that was read")

    def test_lag_before_it_connected_is_unknown(self, source: Source) -> None:
        assert source.lag() is None

    # Closing.

    def test_close_twice_does_no_harm(
        self, broker: SourceUnderTest, source: Source, name: str
    ) -> None:
        broker.send(name, [b"one"])
        settled(source, 1)
        source.close()
        source.close()
        assert source.lag() is None

    def test_close_unused_does_no_harm(self, source: Source) -> None:
        source.close()

    def test_receive_after_close_raises(self, source: Source) -> None:
        source.close()
        with pytest.raises(BrokerUnavailable):
            source.receive(WAIT_S)

    def test_close_while_another_thread_receives_ends_it(self, source: Source) -> None:
        source.receive(WAIT_S)
        ended = threading.Event()

        def receive() -> None:
            try:
                source.receive(60)
            except BrokerUnavailable:
                pass
            finally:
                ended.set()

        thread = threading.Thread(target=receive)
        thread.start()
        source.close()
        assert ended.wait(MOST_S)
        thread.join()

    def test_close_while_another_thread_connects_ends_it(self, broker: SourceUnderTest) -> None:
        with silent_listener() as port:
            source = broker.open_at(port)
            thread = threading.Thread(target=raises_in_time, args=[source])
            thread.start()
            source.close()
            thread.join(MOST_S)
            assert not thread.is_alive()


class SourceContract(QueueContract):
    """The contract, with that of the connection. Subclass it as Test…, with a fixture `broker`."""

    def test_receive_from_an_absent_broker_raises_in_time(self, broker: SourceUnderTest) -> None:
        with closing(broker.open_at(free_port())) as source:
            raises_in_time(source)
            raises_in_time(source)

    def test_receive_from_a_silent_broker_raises_in_time(self, broker: SourceUnderTest) -> None:
        with silent_listener() as port, closing(broker.open_at(port)) as source:
            raises_in_time(source)

    def test_keep_alive_for_longer_than_the_broker_waits_keeps_the_batch(
        self, broker: SourceUnderTest, name: str
    ) -> None:
        broker.send(name, numbered(30))
        with closing(broker.open(name, impatient=True, batch=10)) as source:
            batch = received(source)
            until = time.monotonic() + 1.5 * broker.silent_s + MARGIN_S
            pause = threading.Event()
            while time.monotonic() < until:
                source.keep_alive()
                pause.wait(0.2)
            source.settle(batch)
            rest = settled(source, 30 - len(batch))
            assert bodies([*batch, *rest]) == numbered(30)
            assert is_quiet(source)


def raises_in_time(source: Source) -> None:
    with ends_within(MOST_S), pytest.raises(BrokerUnavailable):
        source.receive(1)
