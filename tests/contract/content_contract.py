"""What is confirmed is there, unchanged."""

import secrets

from duebridge.envelope import Headers, Properties, Target
from duebridge.ports.publisher import Publisher, Verdict
from tests.support.contract.broker_under_test import (
    BrokerUnderTest,
    as_text,
    delivery,
    ids,
    needs,
    verdicts,
)

ALL_BYTES = bytes(range(256))


class ContentContract:
    """Bodies, keys, headers, properties and order."""

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
