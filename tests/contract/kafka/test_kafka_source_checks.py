"""What is said of an intake's topic and group, on a real broker."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from duebridge.ports.checks import Finding, Severity
from duebridge.ports.source import SourcePlan
from duebridge_connectors.kafka.broker import KAFKA
from tests.support.contract.source_under_test import WITHIN_S
from tests.support.kafka.kafka_sources import CLIENTS, KafkaSources
from tests.support.servers import free_port


@pytest.fixture
def broker(kafka_bootstrap: str) -> Iterator[KafkaSources]:
    with closing(KafkaSources(kafka_bootstrap, CLIENTS[0])) as broker:
        yield broker


def examined(server: str, topic: str, deadline_s: float = WITHIN_S) -> list[Finding]:
    settings = {"type": "kafka", "bootstrap_servers": [server], "client": "librdkafka"}
    plan = SourcePlan("i", "orders", {"topic": topic, "group": "readers"})
    return KAFKA.examine_source("intakes.i.source", settings, plan, deadline_s)


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
    (finding,) = examined(f"127.0.0.1:{free_port()}", "any", deadline_s=3.0)
    assert finding.severity is Severity.FAILURE
    assert "no Kafka answers" in finding.found


def test_source_settings_refuse_what_is_no_topic() -> None:
    assert KAFKA.source is not None
    with pytest.raises(ValueError, match="letters, digits"):
        KAFKA.source.model_validate({"broker": "b", "topic": "no topic"})
    given = KAFKA.source.model_validate({"broker": "b", "topic": "t"})
    assert given.model_dump() == {"broker": "b", "topic": "t", "group": "duebridge"}
