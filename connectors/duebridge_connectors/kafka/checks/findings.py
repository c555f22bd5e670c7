"""What both an intake and a route's target may find wrong with a cluster or a topic."""

from collections.abc import Iterator, Mapping
from typing import Literal

from duebridge.ports.checks import Finding, FindingSubject, failure
from duebridge_connectors.kafka.checks.admin import CannotConnect, Topic
from duebridge_connectors.kafka.settings import servers_of

_CLOSED, _MISSING = "TopicAuthorizationFailedError", "UnknownTopicOrPartitionError"
Use = Literal["read", "write"]


def unreachable(place: str, settings: Mapping[str, object], error: CannotConnect) -> Finding:
    """Return that no broker answers."""
    found = f"no Kafka answers at {', '.join(servers_of(settings))}: {error}"
    remedy = "start it, or correct bootstrap_servers or the security options"
    return failure(FindingSubject.BROKER, place, found, remedy)


def unusable(place: str, name: str, topic: Topic, use: Use) -> Finding:
    """Return what is wrong with a topic that has an error."""
    remedies = {
        _MISSING: "create it, or fix the name: duebridge creates no topics",
        "InvalidTopicError": "fix the name",
        _CLOSED: f"allow this user to describe and {use} it, or fix the name",
    }
    found = f"topic {name} cannot be used: {topic.error}"
    if topic.error == _MISSING:
        found = f"topic {name} does not exist"
    about = FindingSubject.ROUTE if topic.error == _CLOSED else FindingSubject.BROKER
    return failure(about, place, found, remedies.get(topic.error, "see the broker's log"))


def hindrances(place: str, name: str, topic: Topic, use: Use) -> Iterator[Finding]:
    """Yield a missing right, and partitions that nobody leads."""
    if topic.operations is not None and use.upper() not in topic.operations:
        found = f"this user may not {use} topic {name}"
        remedy = f"allow this user the operation {use.upper()} on it"
        yield failure(FindingSubject.ROUTE, place, found, remedy)
    if topic.without_leader:
        counts = f"{topic.without_leader} of {topic.partitions} partitions"
        found = f"topic {name}: {counts} have no leader"
        yield failure(FindingSubject.BROKER, place, found, "start the brokers that hold them")
