"""Checks an intake's topic and group, read-only."""

from collections.abc import Iterator, Mapping
from contextlib import closing

from duebridge.ports.checks import Finding, FindingSubject, failure, ok, warning
from duebridge.ports.source import SourcePlan
from duebridge_connectors.kafka.checks.admin import Admin, CannotConnect, Topic
from duebridge_connectors.kafka.checks.findings import hindrances, unreachable, unusable
from duebridge_connectors.kafka.settings import ANY_DEADLINE_S, producer_config
from duebridge_connectors.kafka.source.settings import group_of

SHORT_MS = 24 * 3600 * 1000  # an intake may be down for a night


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
        return [unreachable(place, settings, error)]
    findings = [*_of_topic(place, topic, found), *_of_group(place, group, refusal)]
    return findings or [_fine(place, topic, group, found)]


def _of_topic(place: str, name: str, topic: Topic) -> Iterator[Finding]:
    if topic.error:
        yield unusable(place, name, topic, "read")
        return
    yield from hindrances(place, name, topic, "read")
    # Where the broker may drop a record that was not read yet:
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
