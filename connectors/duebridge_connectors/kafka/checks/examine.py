"""Checks a cluster, the routes' topics, and the topic and group of an intake, read-only."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from typing import Literal

from duebridge.ports.checks import Destination, Finding, FindingSubject, failure, ok, warning
from duebridge.ports.source import SourcePlan
from duebridge_connectors.kafka.checks.admin import Admin, CannotConnect, Topic
from duebridge_connectors.kafka.checks.permissions import group_of
from duebridge_connectors.kafka.settings import (
    ANY_DEADLINE_S,
    client_of,
    producer_config,
    servers_of,
)
from duebridge_connectors.kafka.sizes import DEFAULT_BYTES

# Allowance for the key, the headers, the bridge's headers and a dead letter's headers.
ROOM_BYTES = 4096
SHORT_MS = 24 * 3600 * 1000  # an intake may be down for a night

_CLOSED, _MISSING = "TopicAuthorizationFailedError", "UnknownTopicOrPartitionError"
_Use = Literal["read", "write"]


def examine(
    place: str,
    settings: Mapping[str, object],
    destinations: Sequence[Destination],
    deadline_s: float,
) -> list[Finding]:
    """Return findings about a cluster and each topic; see `BrokerType.examine`."""
    config = producer_config(settings, ANY_DEADLINE_S)
    try:
        with closing(Admin(config, deadline_s)) as admin:
            brokers = admin.brokers()
            topics = admin.topics({_name(destination) for destination in destinations})
    except CannotConnect as error:
        return [_unreachable(place, settings, error)]
    found = [ok(FindingSubject.BROKER, place, f"answers (brokers: {brokers})")]
    found += _packages(place, client_of(settings))
    for destination in destinations:
        found += topic_findings(destination, topics[_name(destination)], config)
    return found


def topic_findings(
    destination: Destination, topic: Topic, config: Mapping[str, object]
) -> list[Finding]:
    """Return the findings about one destination's topic."""
    if topic.error:
        return [_unusable(destination.place, _name(destination), topic, "write")]
    return list(_problems(destination, topic, config)) or [_usable(destination, topic)]


def _name(destination: Destination) -> str:
    return str(destination.target.topic)


def _problems(
    destination: Destination, topic: Topic, config: Mapping[str, object]
) -> Iterator[Finding]:
    name, place = _name(destination), destination.place
    yield from _hindrances(place, name, topic, "write")
    if not topic.without_leader and topic.in_sync < topic.min_in_sync:
        found = f"topic {name}: expected {topic.min_in_sync} replicas in sync; got {topic.in_sync}"
        remedy = "start the brokers that lag or are down"
        yield failure(FindingSubject.BROKER, place, found, remedy)
    yield from _size_problems(destination, topic, config)
    if topic.is_compacted:
        found = f"topic {name} is compacted: it refuses records without a key and keeps one per key"
        yield warning(FindingSubject.ROUTE, place, found, "give each envelope a different key")


def _size_problems(
    destination: Destination, topic: Topic, config: Mapping[str, object]
) -> Iterator[Finding]:
    request_bytes = int(str(config.get("max_request_size", DEFAULT_BYTES)))
    yield from _limit(destination, request_bytes, "options.max.request.size of the broker", True)
    if topic.max_message_bytes:
        # The limit applies to compressed bytes; the compression ratio is unknown.
        is_certain = not config.get("compression_type")
        name = f"max.message.bytes of topic {_name(destination)}"
        yield from _limit(destination, topic.max_message_bytes, name, is_certain)


def _limit(
    destination: Destination, limit_bytes: int, name: str, is_certain: bool
) -> Iterator[Finding]:
    need_bytes = destination.max_body_bytes + ROOM_BYTES
    if need_bytes <= limit_bytes:
        return
    found = f"max_body is {destination.max_body_bytes} bytes, but {name} is {limit_bytes}"
    remedy = f"raise the limit to {need_bytes}, or lower routes.{destination.route}.max_body"
    if destination.max_body_bytes > limit_bytes and is_certain:
        yield failure(FindingSubject.ROUTE, destination.place, found, remedy)
    else:
        text = "key and headers may not fit"
        if not is_certain:
            text = "a body that compresses badly may not fit"
        yield warning(FindingSubject.ROUTE, destination.place, f"{found}: {text}", remedy)


def _usable(destination: Destination, topic: Topic) -> Finding:
    parts = [f"partitions: {topic.partitions}"]
    if topic.max_message_bytes:
        parts.append(f"max.message.bytes: {topic.max_message_bytes}")
    else:
        parts.append("limits unknown: this user may not describe its configuration")
    if topic.operations is None:
        parts.append("permissions unknown: the broker does not report them")
    return ok(
        FindingSubject.ROUTE,
        destination.place,
        f"topic {_name(destination)} exists ({', '.join(parts)})",
    )


def _packages(place: str, client: str) -> Iterator[Finding]:
    if client == "librdkafka" and not find_spec("confluent_kafka"):
        found = "client librdkafka needs the Python package confluent_kafka, which is not installed"
        yield failure(
            FindingSubject.CONFIG, place, found, "type: pip install 'duebridge[librdkafka]'"
        )
    if client == "kafka-python" and not find_spec("crc32c"):
        found = "the Python package crc32c is missing: a message costs twice the CPU"
        yield warning(FindingSubject.CONFIG, place, found, "type: pip install 'duebridge[kafka]'")


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
        return [_unreachable(place, settings, error)]
    findings = [*_source_problems(place, topic, found), *_group_problems(place, group, refusal)]
    return findings or [_readable(place, topic, group, found)]


def _source_problems(place: str, name: str, topic: Topic) -> Iterator[Finding]:
    if topic.error:
        yield _unusable(place, name, topic, "read")
        return
    yield from _hindrances(place, name, topic, "read")
    # Where the broker may drop a record that was not read yet:
    if topic.is_compacted:
        found = f"topic {name} is compacted: of two records with a key it may keep the later alone"
        remedy = "set cleanup.policy=delete, unless the intake replaces by key"
        yield warning(FindingSubject.ROUTE, place, found, remedy)
    if 0 < topic.retention_ms < SHORT_MS:
        hours = topic.retention_ms / 3600 / 1000
        found = f"topic {name} keeps records for {hours:.1f} hours: an outage may outlast that"
        yield warning(FindingSubject.ROUTE, place, found, "set retention.ms to a day or more")


def _group_problems(place: str, name: str, refusal: str) -> Iterator[Finding]:
    if refusal:
        found = f"this user may not read group {name}: {refusal}"
        yield failure(
            FindingSubject.ROUTE, place, found, "allow this user the operation READ on the group"
        )


def _readable(place: str, topic: str, group: str, found: Topic) -> Finding:
    parts = [f"partitions: {found.partitions}", f"group: {group}"]
    if found.operations is None:
        parts.append("permissions unknown: the broker does not report them")
    return ok(FindingSubject.ROUTE, place, f"topic {topic} can be read ({', '.join(parts)})")


def _unreachable(place: str, settings: Mapping[str, object], error: CannotConnect) -> Finding:
    found = f"no Kafka answers at {', '.join(servers_of(settings))}: {error}"
    remedy = "start it, or correct bootstrap_servers or the security options"
    return failure(FindingSubject.BROKER, place, found, remedy)


def _unusable(place: str, name: str, topic: Topic, use: _Use) -> Finding:
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


def _hindrances(place: str, name: str, topic: Topic, use: _Use) -> Iterator[Finding]:
    if topic.operations is not None and use.upper() not in topic.operations:
        found = f"this user may not {use} topic {name}"
        remedy = f"allow this user the operation {use.upper()} on it"
        yield failure(FindingSubject.ROUTE, place, found, remedy)
    if topic.without_leader:
        counts = f"{topic.without_leader} of {topic.partitions} partitions"
        found = f"topic {name}: {counts} have no leader"
        yield failure(FindingSubject.BROKER, place, found, "start the brokers that hold them")
