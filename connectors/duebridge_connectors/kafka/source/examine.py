"""Checks an intake's topic and group, read-only."""

from collections.abc import Iterator, Mapping
from contextlib import closing

from duebridge.ports.checks import Finding, FindingSubject, failure, ok, warning
from duebridge.ports.source import SourcePlan
from duebridge_connectors.kafka.checks.admin import Admin, CannotConnect, Topic
from duebridge_connectors.kafka.settings import producer_config, servers_of
from duebridge_connectors.kafka.source.settings import ANY_DEADLINE_S, group_of

SHORT_MS = 24 * 3600 * 1000  # an intake may be down for a night

_REMEDIES = {
    "UnknownTopicOrPartitionError": "create it, or fix the name: duebridge creates no topics",
    "InvalidTopicError": "fix the name",
    "TopicAuthorizationFailedError": "allow this user to describe and read it, or fix the name",
}


def examine_source(
    place: str, settings: Mapping[str, object], plan: SourcePlan, deadline_s: float
) -> list[Finding]:
    """Return findings about the topic and the group; see `BrokerType.examine_source`."""
    config = producer_config({**settings, "client": "kafka-python"}, ANY_DEADLINE_S)
    topic, group = str(plan.source["topic"]), group_of(plan)
    try:
        with closing(Admin(config, deadline_s)) as admin:
            found = admin.topics({topic})[topic]
            refusal = admin.group_refusal(group)
    except CannotConnect as error:
        remedy = "start it, or correct bootstrap_servers or the security options"
        where = ", ".join(servers_of(settings))
        return [
            failure(FindingSubject.BROKER, place, f"no Kafka answers at {where}: {error}", remedy)
        ]
    findings = [*_of_topic(place, topic, found), *_of_group(place, group, refusal)]
    return findings or [_fine(place, topic, group, found)]


def _of_topic(place: str, name: str, topic: Topic) -> Iterator[Finding]:
    if topic.error:
        is_closed = topic.error == "TopicAuthorizationFailedError"
        found = f"topic {name} cannot be used: {topic.error}"
        if topic.error == "UnknownTopicOrPartitionError":
            found = f"topic {name} does not exist"
        remedy = _REMEDIES.get(topic.error, "see the broker's log")
        yield failure(
            FindingSubject.ROUTE if is_closed else FindingSubject.BROKER, place, found, remedy
        )
        return
    if topic.operations is not None and "READ" not in topic.operations:
        found = f"this user may not read topic {name}"
        yield failure(
            FindingSubject.ROUTE, place, found, "allow this user the operation READ on it"
        )
    if topic.without_leader:
        counts = f"{topic.without_leader} of {topic.partitions} partitions"
        found = f"topic {name}: {counts} have no leader"
        yield failure(FindingSubject.BROKER, place, found, "start the brokers that hold them")
    yield from _of_keeping(place, name, topic)


def _of_keeping(place: str, name: str, topic: Topic) -> Iterator[Finding]:
    """Yield a warning where the broker may drop a record that was not read yet."""
    if topic.is_compacted:
        found = f"topic {name} is compacted: of two records with a key it may keep the later alone"
        remedy = "set cleanup.policy=delete, unless the intake replaces by key"
        yield warning(FindingSubject.ROUTE, place, found, remedy)
    if 0 < topic.retention_ms < SHORT_MS:
        hours = topic.retention_ms / 3600 / 1000
        found = f"topic {name} keeps records for {hours:.1f} hours: an outage may outlast that"
        yield warning(FindingSubject.ROUTE, place, found, "set retention.ms to a day or more")


def _of_group(place: str, name: str, refusal: str) -> Iterator[Finding]:
    if refusal:
        found = f"this user may not read group {name}: {refusal}"
        yield failure(
            FindingSubject.ROUTE, place, found, "allow this user the operation READ on the group"
        )


def _fine(place: str, topic: str, group: str, found: Topic) -> Finding:
    parts = [f"partitions: {found.partitions}", f"group: {group}"]
    if found.operations is None:
        parts.append("permissions unknown: the broker does not report them")
    return ok(FindingSubject.ROUTE, place, f"topic {topic} can be read ({', '.join(parts)})")
