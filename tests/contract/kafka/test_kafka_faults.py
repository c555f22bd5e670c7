"""What only Kafka can do to a batch, on a real broker, by either client."""

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from duebridge.envelope import Properties, Target
from duebridge.ports.publisher import Delivery, Outcome, Reason, Verdict
from duebridge_connectors.kafka.publisher import KafkaPublisher
from tests.support.contract.broker_under_test import delivery, ids, verdicts
from tests.support.kafka.kafka_broker import KafkaBroker, LibrdkafkaBroker
from tests.support.servers import wait_until

DEADLINE_S = 15.0

EitherPublisher = KafkaPublisher[Any]


@pytest.fixture(scope="module", params=[KafkaBroker, LibrdkafkaBroker])
def broker(kafka_bootstrap: str, request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    with closing(request.param(kafka_bootstrap)) as broker:
        yield broker


def make(broker: KafkaBroker, **configs: str) -> Target:
    target = broker.missing_target()
    broker.create(target, configs=configs)
    return target


def test_publish_above_the_topics_own_limit_among_good_rejects_it_alone(
    broker: KafkaBroker, publisher: EitherPublisher
) -> None:
    # The limit is below the whole batch's size, so the client has to split it several times.
    target = make(broker, **{"max.message.bytes": "3000"})
    batch = [delivery(target, b"x" * 100) for _ in range(100)]
    batch[41] = delivery(target, b"x" * 5000)
    outcomes = publisher.publish(batch)
    assert [place for place, o in enumerate(outcomes) if o.verdict is not Verdict.CONFIRMED] == [41]
    assert (outcomes[41].verdict, outcomes[41].reason) == (Verdict.REJECTED, Reason.TOO_LARGE)
    good = [d.id for place, d in enumerate(batch) if place != 41]
    assert sorted(ids(broker.read_all(target))) == sorted(good)


def test_publish_several_invalid_in_a_large_batch_rejects_only_those(
    broker: KafkaBroker, publisher: EitherPublisher
) -> None:
    target = make(broker, **{"cleanup.policy": "compact"})
    bad = {0, 7, 199, 200, 499}
    batch = [delivery(target, key=None if n in bad else b"k%d" % n) for n in range(500)]
    outcomes = publisher.publish(batch)
    rejected = {place for place, o in enumerate(outcomes) if o.verdict is Verdict.REJECTED}
    assert rejected == bad
    assert {outcomes[place].reason for place in bad} == {Reason.INVALID}
    assert set(verdicts(outcomes)) == {Verdict.CONFIRMED, Verdict.REJECTED}
    good = [d.id for place, d in enumerate(batch) if place not in bad]
    assert sorted(ids(broker.read_all(target))) == sorted(good)


def test_publish_invalid_among_good_with_no_way_to_try_alone_counts_no_failure(
    broker: KafkaBroker, publisher: EitherPublisher
) -> None:
    target = make(broker, **{"cleanup.policy": "compact"})
    publisher._single.close()
    good, invalid = verdicts(publisher.publish([delivery(target, key=b"k"), delivery(target)]))
    assert invalid is Verdict.DEFERRED
    went_alone = good is Verdict.CONFIRMED  # a client may have sent it before it had the other
    assert went_alone or good is Verdict.DEFERRED
    assert len(broker.read_all(target)) == went_alone


def test_publish_what_the_client_cannot_carry_rejects_it_alone(
    broker: KafkaBroker, publisher: EitherPublisher
) -> None:
    target = make(broker)
    no_text = delivery(target, headers=(("broken", "\ud800"),))
    no_name = delivery(target, headers=(("\ud800", "broken"),))
    outcomes = publisher.publish([no_name, delivery(target), no_text])
    assert verdicts(outcomes) == [Verdict.REJECTED, Verdict.CONFIRMED, Verdict.REJECTED]
    assert {outcomes[0].reason, outcomes[2].reason} == {Reason.INVALID}


def test_publish_without_key_and_body_is_rejected_only_where_the_client_cannot(
    broker: KafkaBroker, publisher: EitherPublisher
) -> None:
    (outcome,) = publisher.publish([delivery(make(broker), None)])
    expected = Verdict.REJECTED if type(broker) is KafkaBroker else Verdict.CONFIRMED
    assert outcome.verdict is expected


def test_publish_a_header_with_a_zero_byte_keeps_it_whole(
    broker: KafkaBroker, publisher: EitherPublisher
) -> None:
    target = make(broker)
    publisher.publish([delivery(target, headers=(("text", "a\0b"), ("bytes", b"a\0b")))])
    assert dict(broker.read_all(target)[0].headers) == {"text": b"a\0b", "bytes": b"a\0b"}


@pytest.mark.parametrize("topic", ["", "a b", "..", "x" * 250, "x" * 600])
def test_publish_to_an_impossible_topic_fails_that_target(
    topic: str, broker: KafkaBroker, publisher: EitherPublisher
) -> None:
    target = make(broker)
    outcomes = publisher.publish([delivery(target), delivery(Target("kafka", topic=topic))])
    assert verdicts(outcomes) == [Verdict.CONFIRMED, Verdict.TARGET_FAILED]
    assert outcomes[1].reason is Reason.TARGET_MISSING


def test_publish_to_a_topic_made_again_with_fewer_partitions_calls_none_missing(
    broker: KafkaBroker, publisher: EitherPublisher
) -> None:
    target = broker.missing_target()
    broker.create(target, partitions=8)
    batch = [delivery(target, key=b"%d" % n) for n in range(100)]
    assert verdicts(publisher.publish(batch)) == [Verdict.CONFIRMED] * 100
    broker.delete(target)
    broker.create(target, partitions=2)
    with closing(broker.open(DEADLINE_S)) as other:
        while set(verdicts(other.publish(batch))) != {Verdict.CONFIRMED}:
            pass  # the partitions have no leader yet
    # librdkafka may end the handle of a partition that is gone amid a request: in doubt, no more
    found = set(verdicts(publisher.publish(batch)))
    assert found <= {Verdict.CONFIRMED, Verdict.INDETERMINATE}
    assert verdicts(publisher.publish(batch)) == [Verdict.CONFIRMED] * 100


def test_publish_content_type_becomes_a_header(
    broker: KafkaBroker, publisher: EitherPublisher
) -> None:
    target = make(broker)
    json = Properties(content_type="application/json")
    own = (("Content-Type", "text/plain"),)
    publisher.publish([delivery(target, properties=json), delivery(target, b"", None, own, json)])
    headers = [r.headers for r in broker.read_all(target)]
    assert headers == [(("content-type", b"application/json"),), (("Content-Type", b"text/plain"),)]


def test_publish_null_headers_in_a_batch_that_is_split_keeps_them(
    broker: KafkaBroker, publisher: EitherPublisher
) -> None:
    target = make(broker, **{"max.message.bytes": "3000"})
    header = (("nothing", None),)
    batch = [delivery(target, b"x" * 100, headers=header) for _ in range(40)]
    assert verdicts(publisher.publish(batch)) == [Verdict.CONFIRMED] * 40
    assert [r.headers for r in broker.read_all(target)] == [header] * 40


def test_publish_compressed_keeps_the_body(broker: KafkaBroker) -> None:
    target = make(broker)
    with closing(broker.open(DEADLINE_S, {"compression.type": "zstd"})) as publisher:
        assert verdicts(publisher.publish([delivery(target, b"x" * 10_000)])) == [Verdict.CONFIRMED]
    assert [r.body for r in broker.read_all(target)] == [b"x" * 10_000]


def test_publish_stamps_records_with_the_time_of_publishing(
    broker: KafkaBroker, publisher: EitherPublisher
) -> None:
    target = make(broker)
    before = int(time.time() * 1000)
    publisher.publish([delivery(target)])
    (stamp,) = broker.timestamps(target)
    assert before <= stamp <= time.time() * 1000


def test_publish_at_a_time_that_the_topic_refuses_is_the_targets_trouble_and_names_the_clock(
    broker: KafkaBroker, publisher: EitherPublisher
) -> None:
    target = make(broker, **{"message.timestamp.before.max.ms": "0"})
    refused: list[Outcome] = []  # what comes within its own millisecond is taken

    def is_refused() -> bool:
        outcomes = publisher.publish([delivery(target) for _ in range(100)])
        refused.extend(each for each in outcomes if each.verdict is not Verdict.CONFIRMED)
        return bool(refused)

    wait_until(is_refused, "a record that comes a millisecond late")
    assert {each.verdict for each in refused} == {Verdict.TARGET_UNAVAILABLE}
    assert not any(each.may_be_published for each in refused)
    assert all("compare its clock" in each.error_message for each in refused)


def test_publish_in_a_forked_child_and_its_parent_confirms_both(
    broker: KafkaBroker, publisher: EitherPublisher
) -> None:
    target = make(broker)
    batch = [delivery(target) for _ in range(10)]
    assert verdicts(publisher.publish(batch)) == [Verdict.CONFIRMED] * 10
    child = _fork()
    if child == 0:
        os._exit(_publish_in_child(publisher, batch))
    assert verdicts(publisher.publish(batch)) == [Verdict.CONFIRMED] * 10
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert verdicts(publisher.publish(batch)) == [Verdict.CONFIRMED] * 10
    assert len(broker.read_all(target)) == 40


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 and later warn of a fork with threads; whether that goes well is the question.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _publish_in_child(publisher: EitherPublisher, batch: list[Delivery]) -> int:
    try:
        confirmed = verdicts(publisher.publish(batch)) == [Verdict.CONFIRMED] * len(batch)
        publisher.close()
    except BaseException:
        return 2
    return 0 if confirmed else 1
