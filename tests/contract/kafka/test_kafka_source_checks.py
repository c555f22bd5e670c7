"""What is said of an intake's topic and group, and the ACLs that it needs, on real brokers."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient

from duebridge.config.secrets import resolve_at
from duebridge.errors import ConfigError
from duebridge.ports.checks import Finding, Severity
from duebridge.ports.source import Source, SourcePlan
from duebridge_connectors.kafka.broker import KAFKA
from tests.support.certificates import Certificates
from tests.support.contract.source_under_test import WITHIN_S, Memory, bodies, settled
from tests.support.documented import documented
from tests.support.kafka.acls import acls_of
from tests.support.kafka.kafka_sources import CLIENTS, KafkaSources
from tests.support.kafka.own_kafka import PASSWORD, SecureKafka
from tests.support.servers import free_port, wait_until

BY_PASSWORD = "Kafka, user and password"  # noqa: S105 - a title


@pytest.fixture
def broker(kafka_bootstrap: str) -> Iterator[KafkaSources]:
    with closing(KafkaSources(kafka_bootstrap, CLIENTS[0])) as broker:
        yield broker


def examined(server: str, topic: str) -> list[Finding]:
    settings = {"type": "kafka", "bootstrap_servers": [server], "client": "librdkafka"}
    plan = SourcePlan("i", "orders", {"topic": topic, "group": "readers"})
    return KAFKA.examine_source("intakes.i.source", settings, plan, WITHIN_S)


@pytest.mark.parametrize(
    ("configs", "severity", "found"),
    [
        ({"retention.ms": "604800000"}, Severity.OK, "can be read (partitions: 1, group: readers"),
        ({"cleanup.policy": "compact", "retention.ms": "-1"}, Severity.WARNING, "is compacted"),
        ({"retention.ms": "3600000"}, Severity.WARNING, "keeps records for 1.0 hours"),
    ],
)
def test_examine_source_says_what_the_topic_may_lose(
    broker: KafkaSources, configs: dict[str, str], severity: Severity, found: str
) -> None:
    (finding,) = examined(broker.bootstrap, broker.create(**configs))
    assert (finding.severity, finding.place) == (severity, "intakes.i.source")
    assert found in finding.found


def test_examine_source_of_a_missing_topic_fails(broker: KafkaSources) -> None:
    (finding,) = examined(broker.bootstrap, broker.missing())
    assert finding.severity is Severity.FAILURE
    assert "does not exist" in finding.found


def test_examine_source_of_an_absent_broker_fails() -> None:
    (finding,) = examined(f"127.0.0.1:{free_port()}", "any")
    assert finding.severity is Severity.FAILURE
    assert "no Kafka answers" in finding.found


def opened(settings: Any, topic: str, group: str) -> Source:
    plan = SourcePlan("i", "orders", {"topic": topic, "group": group})
    return KAFKA.open_source(settings, plan, Memory())


def refusal(source: Source) -> str:
    with closing(source), pytest.raises(ConfigError) as refused:
        source.receive(WITHIN_S)
    return str(refused.value)


@pytest.mark.parametrize("client", CLIENTS)
def test_printed_acls_take_in_from_the_topic_and_group_and_from_no_other(
    client: str,
    secure_kafka: SecureKafka,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    found = documented(BY_PASSWORD, certificates, f"localhost:{secure_kafka.sasl}")["orders"]
    settings: Any = {**resolve_at("", found), "client": client}
    with closing(KafkaSources(f"127.0.0.1:{secure_kafka.open}", client)) as broker:
        own, other = broker.create(), broker.create()
        broker.send(own, [b"for us"])
        plan = SourcePlan("i", "orders", {"topic": own, "group": f"group-of-{own}"})
        commands = KAFKA.source_permissions(settings, [plan])
        strangers = {**settings, "options": {"sasl.username": "another"}}
        foreign = SourcePlan("i", "orders", {"topic": other, "group": "others"})
        commands += KAFKA.source_permissions(strangers, [foreign])
        with closing(KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{secure_kafka.open}")) as admin:
            admin.create_acls([acl for line in commands for acl in acls_of(line)])

        def is_closed() -> bool:
            findings = KAFKA.examine_source("p", settings, foreign, 15)
            return {each.severity for each in findings} == {Severity.FAILURE}

        wait_until(is_closed, "the ACLs to hold", 20)
        (fine,) = KAFKA.examine_source("p", settings, plan, 15)
        assert fine.severity is Severity.OK
        with closing(opened(settings, own, f"group-of-{own}")) as source:
            assert bodies(settled(source, 1)) == [b"for us"]
        assert "TOPIC_AUTHORIZATION_FAILED" in normal(refusal(opened(settings, other, "any")))
        assert "GROUP_AUTHORIZATION_FAILED" in normal(refusal(opened(settings, own, "others")))


def normal(text: str) -> str:
    """Return librdkafka's names for kafka-python's."""
    for kind in ("Topic", "Group"):
        text = text.replace(
            f"{kind}AuthorizationFailedError", f"{kind.upper()}_AUTHORIZATION_FAILED"
        )
    return text


def test_source_settings_refuse_what_is_no_topic() -> None:
    assert KAFKA.source is not None
    with pytest.raises(ValueError, match="letters, digits"):
        KAFKA.source.model_validate({"broker": "b", "topic": "no topic"})
    given = KAFKA.source.model_validate({"broker": "b", "topic": "t"})
    assert given.model_dump() == {"broker": "b", "topic": "t", "group": "duebridge"}
