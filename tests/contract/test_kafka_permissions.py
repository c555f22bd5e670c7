"""What the Kafka examiner says of topics that are closed to us, on a broker with ACLs."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.errors import TopicAuthorizationFailedError

from duebridge.envelope import Target
from duebridge.ports.checks import About, Destination, Finding, Severity
from duebridge_connectors.kafka.examine import examine
from tests.contract.private_kafka import kafka_with_authorizer
from tests.store.servers import wait_until

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


def examined(bootstrap: str, topic: str) -> Finding:
    settings = {"type": "kafka", "bootstrap_servers": [bootstrap]}
    each = Destination("r", "routes.r.target", Target("orders", topic=topic), 1000)
    return examine("brokers.orders", settings, [each], 5.0)[-1]


def test_examine_topic_that_we_may_not_write_fails(bootstrap: str) -> None:
    finding = examined(bootstrap, "readonly")
    assert (finding.severity, finding.about) == (Severity.FAILURE, About.ROUTE)
    assert finding.found == "topic readonly may not be written by this user"


def test_examine_topic_that_we_may_not_see_fails(bootstrap: str) -> None:
    finding = examined(bootstrap, "hidden")
    assert (finding.severity, finding.about) == (Severity.FAILURE, About.ROUTE)
    assert "TopicAuthorizationFailedError" in finding.found


def test_examine_topic_whose_limits_we_may_not_see_says_so(bootstrap: str) -> None:
    finding = examined(bootstrap, "secretive")
    assert finding.severity is Severity.OK
    assert "its limits are not told" in finding.found


def test_examine_topic_that_is_open_is_ok(bootstrap: str) -> None:
    finding = examined(bootstrap, "open")
    assert finding.severity is Severity.OK
    assert "max.message.bytes: 1048588" in finding.found
