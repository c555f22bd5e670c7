"""What the Kafka examiner says of topics, on the real cluster and on one with ACLs."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.errors import TopicAuthorizationFailedError

from duebridge.envelope import Target
from duebridge.ports.checks import Destination, Finding, FindingSubject, Severity
from duebridge_connectors.kafka.checks.admin import Topic
from duebridge_connectors.kafka.checks.examine import ROOM_BYTES, examine, topic_findings
from tests.support.kafka.kafka_broker import KafkaBroker
from tests.support.kafka.own_kafka import kafka_with_authorizer
from tests.support.servers import wait_until

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


ALLOW, DENY = ACLPermissionType.ALLOW, ACLPermissionType.DENY


def acl(topic: str, operation: ACLOperation, permission: ACLPermissionType) -> ACL:
    resource = ResourcePattern(ResourceType.TOPIC, topic)
    return ACL("User:ANONYMOUS", "*", operation, permission, resource)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_with_authorizer(tmp_path_factory.mktemp("kafka")) as address:
        with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
            plain = {"num_partitions": 1, "replication_factor": 1}
            topics = ("open", "readonly", "secretive", "hidden")
            admin.create_topics(dict.fromkeys(topics, plain), wait_for_metadata=True)
            admin.create_acls(
                [
                    acl("readonly", ACLOperation.ALL, ALLOW),
                    acl("readonly", ACLOperation.WRITE, DENY),
                    acl("secretive", ACLOperation.ALL, ALLOW),
                    acl("secretive", ACLOperation.DESCRIBE_CONFIGS, DENY),
                    acl("hidden", ACLOperation.ALL, DENY),
                ]
            )
            wait_until(lambda: is_closed(admin, "hidden"), "the ACLs to hold")
        yield address


def is_closed(admin: Any, topic: str) -> bool:
    (described,) = admin.describe_topics([topic])
    return bool(described["error_code"] == TopicAuthorizationFailedError.errno)


@pytest.mark.parametrize(
    ("topic", "severity", "found"),
    [
        ("readonly", Severity.FAILURE, "this user may not write topic readonly"),
        ("hidden", Severity.FAILURE, "TopicAuthorizationFailedError"),
        ("secretive", Severity.OK, "limits unknown"),
        ("open", Severity.OK, "max.message.bytes: 1048588"),
    ],
)
def test_examine_topic_says_what_we_may_do_and_see(
    bootstrap: str, topic: str, severity: Severity, found: str
) -> None:
    finding = examined(bootstrap, destination(topic))[-1]
    assert (finding.severity, finding.about) == (severity, FindingSubject.ROUTE)
    assert found in finding.found
