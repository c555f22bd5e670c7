"""What the Kafka examiner says of topics; `test_kafka_security` has those with ACLs."""

from typing import Any

import pytest

from duebridge.envelope import Target
from duebridge.ports.checks import Destination, Finding, FindingSubject, Severity
from duebridge_connectors.kafka.checks.admin import Topic
from duebridge_connectors.kafka.checks.examine import ROOM_BYTES, examine, topic_findings
from tests.support.kafka.kafka_broker import KafkaBroker

MIB = 1024 * 1024
FINE = Topic("", ("READ", "WRITE", "DESCRIBE"), 3, 0, 2, MIB, 2, False)


def destination(topic: str | None = "t", max_body_bytes: int = 1000) -> Destination:
    target = Target("orders", topic=topic)
    return Destination("r", "routes.r.target", target, max_body_bytes)


def examined(bootstrap: str, each: Destination, **settings: Any) -> list[Finding]:
    given = {"type": "kafka", "bootstrap_servers": [bootstrap], **settings}
    return examine("brokers.orders", given, [each], 5.0)


def found_of(topic: Topic, max_body_bytes: int = 1000, **config: Any) -> Finding:
    (finding,) = topic_findings(destination("t", max_body_bytes), topic, config)
    return finding


def test_examine_topic_at_the_limit_warns_and_above_it_fails(kafka_bootstrap: str) -> None:
    broker = KafkaBroker(kafka_bootstrap)
    target = broker.missing_target()
    broker.create(target, partitions=2, configs={"max.message.bytes": "10000"})
    severities = [
        examined(kafka_bootstrap, destination(target.topic, size))[-1].severity
        for size in (10_000 - ROOM_BYTES, 10_000 - ROOM_BYTES + 1, 10_000, 10_001)
    ]
    broker.close()
    assert severities == [Severity.OK, Severity.WARNING, Severity.WARNING, Severity.FAILURE]


def test_examine_compacted_topic_warns_of_what_has_no_key(kafka_bootstrap: str) -> None:
    broker = KafkaBroker(kafka_bootstrap)
    target = broker.missing_target()
    broker.create(target, configs={"cleanup.policy": "compact,delete"})
    _, finding = examined(kafka_bootstrap, destination(target.topic))
    broker.close()
    assert finding.severity is Severity.WARNING
    assert "is compacted: it refuses records without a key" in finding.found


@pytest.mark.parametrize("client", ["kafka-python", "librdkafka"])
def test_examine_body_above_the_clients_own_limit_fails(kafka_bootstrap: str, client: str) -> None:
    broker = KafkaBroker(kafka_bootstrap)
    target = broker.missing_target()
    broker.create(target, configs={"max.message.bytes": str(4 * MIB)})
    each = destination(target.topic, 2 * MIB)
    _, refused = examined(kafka_bootstrap, each, client=client)
    options = {"max.request.size": 3 * MIB, "linger.ms": 800}
    _, taken = examined(kafka_bootstrap, each, client=client, options=options)
    broker.close()
    assert (refused.severity, refused.about) == (Severity.FAILURE, FindingSubject.ROUTE)
    assert "options.max.request.size of the broker is 1048576" in refused.found
    assert taken.severity is Severity.OK


def test_findings_of_a_topic_that_is_fine_tell_its_limit() -> None:
    finding = found_of(FINE)
    assert finding.severity is Severity.OK
    assert finding.found == "topic t exists (partitions: 3, max.message.bytes: 1048576)"


@pytest.mark.parametrize(
    ("changed", "about", "found"),
    [
        (
            {"operations": ("READ", "DESCRIBE")},
            FindingSubject.ROUTE,
            "this user may not write topic t",
        ),
        ({"without_leader": 1}, FindingSubject.BROKER, "1 of 3 partitions have no leader"),
        ({"in_sync": 1}, FindingSubject.BROKER, "expected 2 replicas in sync; got 1"),
        (
            {"error": "UnknownTopicOrPartitionError"},
            FindingSubject.BROKER,
            "topic t does not exist",
        ),
        (
            {"error": "InvalidTopicError"},
            FindingSubject.BROKER,
            "cannot be used: InvalidTopicError",
        ),
        (
            {"error": "TopicAuthorizationFailedError"},
            FindingSubject.ROUTE,
            "cannot be used: TopicAuth",
        ),
    ],
)
def test_findings_of_a_topic_with_a_fault_are_one_failure(
    changed: dict[str, Any], about: FindingSubject, found: str
) -> None:
    finding = found_of(FINE._replace(**changed))
    assert (finding.severity, finding.about) == (Severity.FAILURE, about)
    assert found in finding.found
    assert finding.remedy


def test_findings_say_what_the_broker_does_not_tell() -> None:
    finding = found_of(FINE._replace(operations=None, max_message_bytes=0))
    assert finding.severity is Severity.OK
    assert "limits unknown" in finding.found
    assert "permissions unknown" in finding.found


def test_findings_of_a_limit_on_what_is_compressed_are_a_warning() -> None:
    topic = FINE._replace(max_message_bytes=500)
    assert found_of(topic).severity is Severity.FAILURE
    finding = found_of(topic, compression_type="zstd")
    assert finding.severity is Severity.WARNING
    assert "a body that compresses badly may not fit" in finding.found
