"""What only Kafka does: a topic goes, shrinks, is closed to us, or wants more replicas."""

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

from duebridge.audit import Op
from tests.faults.brokers import KafkaSide
from tests.faults.kafka_cluster import FOLLOWERS
from tests.faults.rig import Rig
from tests.faults.scenario import Scenario

LEAST_BYTES = "1000"  # less than the traffic's big bodies, more than its small ones
QUIET_LOOKS = 3


def side_of(rig: Rig) -> KafkaSide:
    assert isinstance(rig.side, KafkaSide)
    return rig.side


def admin(rig: Rig) -> Any:
    return closing(KafkaAdminClient(bootstrap_servers=side_of(rig).bootstrap))


@contextmanager
def standstill(rig: Rig) -> Iterator[None]:
    """Freeze every worker and read all that arrived: what goes with the topic has been seen."""
    for worker in rig.workers:
        worker.send_signal(signal.SIGSTOP)
    side, quiet = side_of(rig), 0
    while quiet < QUIET_LOOKS:
        quiet = 0 if side.collect_topic(side.topic, Op.TARGET) else quiet + 1
    try:
        yield
    finally:
        for worker in rig.workers:
            worker.send_signal(signal.SIGCONT)


def delete_topic(rig: Rig) -> None:
    side = side_of(rig)
    with rig.fault("topic deleted and made again") as fault:
        with standstill(rig), admin(rig) as client:
            client.delete_topics([side.topic])
        rig.see_logged(fault, '"target_failed"')
        side.create(side.topic)


def shrink_topic(rig: Rig) -> None:
    with rig.fault(f"topic takes {LEAST_BYTES} bytes") as fault, admin(rig) as client:
        limit = {"max.message.bytes": LEAST_BYTES}
        resource = ConfigResource(ConfigResourceType.TOPIC, side_of(rig).topic, limit)
        client.alter_configs([resource])
        rig.see_logged(fault, "too_large")


def deny(rig: Rig) -> None:
    resource = ResourcePattern(ResourceType.TOPIC, side_of(rig).topic)
    who = ("User:ANONYMOUS", "*", ACLOperation.WRITE, ACLPermissionType.DENY, resource)
    with rig.fault("writing to the topic denied") as fault, admin(rig) as client:
        client.create_acls([ACL(*who)])
        rig.see_logged(fault, '"target_failed"')
        client.delete_acls([ACLFilter(*who)])


def kill_followers(rig: Rig) -> None:
    with rig.fault("two of three brokers killed") as fault:
        rig.stack.cluster.kill(*FOLLOWERS)
        rig.see_logged(fault, "NotEnoughReplicas")
        rig.stack.cluster.start(*FOLLOWERS)


KAFKA = ("kafka",)
SCENARIOS = [
    Scenario("topic_deleted", delete_topic, brokers=KAFKA),
    Scenario("topic_too_small", shrink_topic, brokers=KAFKA, may_bury=True),
    Scenario("topic_denied", deny, brokers=KAFKA),
    Scenario("not_enough_replicas", kill_followers, brokers=KAFKA, may_bury=True, in_cluster=True),
]
