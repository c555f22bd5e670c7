"""The contract of `duebridge.ports.publisher.Publisher`, passed on every real broker.

A connector's test file is a subclass of `PublisherContract` with one fixture, `broker`, that
returns a `BrokerUnderTest`. What that broker cannot do it says in its `Features`.
"""

import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from duebridge.envelope import Headers, Properties, Target
from duebridge.ports.publisher import (
    BrokerUnavailable,
    Delivery,
    Outcome,
    Publisher,
    Reason,
    Verdict,
)
from tests.support.contract.broker_under_test import (
    BrokerUnderTest,
    as_text,
    delivery,
    ids,
    needs,
    verdicts,
)
from tests.support.network.proxy import proxied
from tests.support.running_clock import ends_within
from tests.support.servers import free_port, silent_listener

ALL_BYTES = bytes(range(256))
DEADLINE_S, SHORT_DEADLINE_S = 15.0, 2.0
MARGIN_S = 1.0
MOST_CONNECTIONS = 8  # within one ping


class PublisherContract:
    """Subclass it as Test…, with a fixture `broker`."""

    @pytest.fixture
    def publisher(self, broker: BrokerUnderTest) -> Iterator[Publisher]:
        with closing(broker.open(DEADLINE_S)) as publisher:
            yield publisher

    @pytest.fixture
    def target(self, broker: BrokerUnderTest) -> Target:
        target = broker.missing_target()
        broker.create(target)
        return target

    # What is confirmed is there, unchanged: bodies, keys, headers, properties and order.

    def test_publish_a_thousand_confirms_each_and_keeps_order(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        batch = [delivery(target, b"%d" % n) for n in range(1000)]
        assert verdicts(publisher.publish(batch)) == [Verdict.CONFIRMED] * 1000
        received = broker.read_all(target)
        assert ids(received) == ids(batch)
        assert [r.body for r in received] == [d.body for d in batch]

    def test_publish_batch_after_batch_keeps_order(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        batches = [[delivery(target) for _ in range(7)] for _ in range(30)]
        for batch in batches:
            assert verdicts(publisher.publish(batch)) == [Verdict.CONFIRMED] * 7
        assert ids(broker.read_all(target)) == [d.id for batch in batches for d in batch]

    def test_publish_any_bytes_keeps_the_body(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        large = secrets.token_bytes(broker.features.largest_body)
        bodies = [ALL_BYTES, b"", b"\0", large, b"after"]
        outcomes = publisher.publish([delivery(target, body) for body in bodies])
        assert verdicts(outcomes) == [Verdict.CONFIRMED] * len(bodies)
        # Compared one by one: the report of a difference within a megabyte would take minutes.
        same = [r.body == b for r, b in zip(broker.read_all(target), bodies, strict=True)]
        assert same == [True] * len(bodies)

    def test_publish_null_body_keeps_it_apart_from_empty(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        needs(broker, "null_body")
        publisher.publish([delivery(target, None, key=b"k"), delivery(target, b"", key=b"k")])
        assert [r.body for r in broker.read_all(target)] == [None, b""]

    def test_publish_keys_keeps_them(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        needs(broker, "keys")
        keys = [b"order-42", ALL_BYTES, b"", None]
        publisher.publish([delivery(target, key=key) for key in keys])
        assert [r.key for r in broker.read_all(target)] == keys

    def test_publish_headers_of_every_type_keeps_each_value(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        given: Headers = (
            ("bytes", ALL_BYTES),
            ("empty", b""),
            ("text", "grüße 日本語 🚚"),
            ("näme", "x"),
            ("int", -(2**63)),
            ("yes", True),
            ("no", False),
        )
        publisher.publish([delivery(target, headers=given)])
        expected = dict(given)
        if not broker.features.typed_headers:
            expected = {name: as_text(value) for name, value in given}
        assert dict(broker.read_all(target)[0].headers) == expected

    def test_publish_null_header_value_keeps_it(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        needs(broker, "null_header_values")
        publisher.publish([delivery(target, headers=(("nothing", None), ("after", b"x")))])
        assert dict(broker.read_all(target)[0].headers) == {"nothing": None, "after": b"x"}

    def test_publish_headers_keeps_their_order(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        needs(broker, "ordered_headers")
        given = tuple((name, b"x") for name in "zebra")
        assert verdicts(publisher.publish([delivery(target, headers=given)])) == [Verdict.CONFIRMED]
        assert tuple(broker.read_all(target)[0].headers) == given

    def test_publish_repeated_header_names_keeps_each(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        needs(broker, "repeated_header_names")
        given = (("a", b"1"), ("b", b"2"), ("a", b"1"), ("a", b"3"))
        publisher.publish([delivery(target, headers=given)])
        assert tuple(broker.read_all(target)[0].headers) == given

    def test_publish_properties_keeps_them(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        needs(broker, "properties")
        given = Properties(
            content_type="application/json",
            content_encoding="gzip",
            correlation_id="c-1",
            reply_to="answers",
            type="order",
            app_id="shop",
            priority=3,
            timestamp=1_767_225_600,
        )
        publisher.publish([delivery(target, properties=given)])
        assert broker.read_all(target)[0].properties == given

    # One bad delivery changes no other's outcome, whichever thread it came from.

    def test_publish_too_large_among_good_rejects_it_alone(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        needs(broker, "size_limit")
        bad = broker.too_large(target)
        bad_outcome = self._publish_among_good(broker, publisher, target, bad)
        assert (bad_outcome.verdict, bad_outcome.reason) == (Verdict.REJECTED, Reason.TOO_LARGE)

    def test_publish_to_missing_target_among_good_fails_it_alone(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        needs(broker, "missing_target")
        bad = delivery(broker.missing_target())
        with ends_within(DEADLINE_S * 2 / 3):
            outcome = self._publish_among_good(broker, publisher, target, bad)
        assert outcome.verdict is Verdict.TARGET_FAILED
        assert outcome.reason in {Reason.TARGET_MISSING, Reason.UNROUTABLE}

    def test_publish_invalid_among_good_rejects_it_alone(
        self, broker: BrokerUnderTest, publisher: Publisher
    ) -> None:
        needs(broker, "invalid")
        bad, good = broker.invalid()
        outcomes = publisher.publish([good, bad, good])
        expected = [Verdict.CONFIRMED, Verdict.REJECTED, Verdict.CONFIRMED]
        assert verdicts(outcomes) == expected
        assert outcomes[1].reason is Reason.INVALID
        assert ids(broker.read_all(good.target)) == [good.id, good.id]

    def test_publish_only_bad_names_each_fault(
        self, broker: BrokerUnderTest, publisher: Publisher
    ) -> None:
        needs(broker, "missing_target")
        outcomes = publisher.publish([delivery(broker.missing_target()) for _ in range(3)])
        assert verdicts(outcomes) == [Verdict.TARGET_FAILED] * 3
        assert all(outcome.error for outcome in outcomes)

    def test_publish_after_missing_target_appears_confirms(
        self, broker: BrokerUnderTest, publisher: Publisher
    ) -> None:
        needs(broker, "missing_target")
        target = broker.missing_target()
        assert verdicts(publisher.publish([delivery(target)])) == [Verdict.TARGET_FAILED]
        broker.create(target)
        assert verdicts(publisher.publish([delivery(target)])) == [Verdict.CONFIRMED]

    def test_publish_after_target_disappears_fails_that_target_alone(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        needs(broker, "missing_target")
        doomed = broker.missing_target()
        broker.create(doomed)
        mixed = [delivery(doomed), delivery(target)]
        assert verdicts(publisher.publish(mixed)) == [Verdict.CONFIRMED] * 2
        broker.delete(doomed)
        assert verdicts(publisher.publish(mixed)) == [Verdict.TARGET_FAILED, Verdict.CONFIRMED]

    def _publish_among_good(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target, bad: Delivery
    ) -> Outcome:
        good = [delivery(target, b"%d" % n) for n in range(20)]
        outcomes = list(publisher.publish([*good[:10], bad, *good[10:]]))
        bad_outcome = outcomes.pop(10)
        assert verdicts(outcomes) == [Verdict.CONFIRMED] * 20
        assert sorted(ids(broker.read_all(target))) == sorted(ids(good))
        return bad_outcome

    def test_publish_by_eight_threads_gives_each_its_own_outcomes(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        missing = broker.missing_target() if broker.features.missing_target else None
        barrier = threading.Barrier(8)
        run = _one_of_eight(publisher, target, missing, barrier)
        with ThreadPoolExecutor(8) as pool:
            confirmed = [id_ for ids_ in pool.map(run, range(8)) for id_ in ids_]
        assert sorted(ids(broker.read_all(target))) == sorted(confirmed)

    # The broker is absent or silent.

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


def _one_of_eight(
    publisher: Publisher, target: Target, missing: Target | None, barrier: threading.Barrier
) -> Callable[[int], list[str]]:
    """Return a thread's work: batches whose bad delivery sits at the thread's own place."""

    def run(place: int) -> list[str]:
        confirmed: list[str] = []
        barrier.wait(DEADLINE_S)
        for _ in range(5):
            batch = [delivery(target) for _ in range(50)]
            expected = [Verdict.CONFIRMED] * 50
            if missing is not None:
                batch[place] = delivery(missing)
                expected[place] = Verdict.TARGET_FAILED
            assert verdicts(publisher.publish(batch)) == expected
            confirmed += [d.id for d in batch if d.target == target]
        return confirmed

    return run
