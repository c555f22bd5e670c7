"""Brokers killed or frozen; targets deleted, denied, too small or full; connections closed."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    ResourcePattern,
    ResourceType,
)

from tests.faults.rig import LEASE_S, Rig
from tests.faults.scenario import IN_CLUSTER, KAFKA, RABBITMQ, Config, Scenario, unhurried
from tests.faults.servers.brokers import RabbitSide
from tests.faults.servers.kafka_cluster import FOLLOWER

LEAST_BYTES = "1000"  # less than the traffic's big bodies, more than its small ones
QUIET_LOOKS = 3
GONE_S = 60.0
LEAST_LENGTH = '{"max-length":10,"overflow":"reject-publish"}'


def kill(rig: Rig) -> None:
    with rig.fault("broker killed") as fault:
        rig.stack.signal(rig.side.service, signal.SIGKILL)
        rig.see_logged(fault, '"lane_stopped"')
        rig.stack.up(rig.side.service)


def freeze(rig: Rig) -> None:
    name = "broker frozen beyond the publish deadline and a lease"
    with rig.fault(name) as fault, rig.stack.frozen(rig.side.service):
        fault.silences(len(rig.workers))
        until = time.monotonic() + LEASE_S
        rig.see_logged(fault, '"lane_stopped"')
        rig.see(lambda: time.monotonic() > until)


@contextmanager
def standstill(rig: Rig) -> Iterator[None]:
    """Freeze every worker and read all that arrived: what goes with the topic has been seen."""
    for worker in rig.workers:
        worker.send_signal(signal.SIGSTOP)
    side, quiet = rig.side, 0
    while quiet < QUIET_LOOKS:
        quiet = 0 if side.collect_topic(side.topic) else quiet + 1
    try:
        yield
    finally:
        for worker in rig.workers:
            worker.send_signal(signal.SIGCONT)


def delete_topic(rig: Rig) -> None:
    side = rig.side
    with rig.fault("topic deleted and made again") as fault:
        with standstill(rig):
            side.remove(side.target)
        rig.see_logged(fault, '"target_held"')
        side.make(side.target)


def shrink_topic(rig: Rig) -> None:
    with rig.fault(f"topic takes {LEAST_BYTES} bytes") as fault, rig.side.admin() as client:
        limit = {"max.message.bytes": LEAST_BYTES}
        resource = ConfigResource(ConfigResourceType.TOPIC, rig.side.topic, limit)
        client.alter_configs([resource])
        rig.see_logged(fault, "too_large")


def deny(rig: Rig) -> None:
    resource = ResourcePattern(ResourceType.TOPIC, rig.side.topic)
    who = ("User:ANONYMOUS", "*", ACLOperation.WRITE, ACLPermissionType.DENY, resource)
    with rig.fault("writing to the topic denied") as fault, rig.side.admin() as client:
        client.create_acls([ACL(*who)])
        rig.see_logged(fault, '"target_held"')
        client.delete_acls([ACLFilter(*who)])


def kill_follower(gone_s: float, rig: Rig) -> None:
    with rig.fault("one of two brokers killed") as fault:
        until = time.monotonic() + gone_s
        rig.stack.cluster.kill(FOLLOWER)
        rig.see_logged(fault, "NotEnoughReplicas")
        rig.see(lambda: time.monotonic() > until)
        rig.stack.cluster.start(FOLLOWER)


def retry_by_default(rig: Rig, config: Config) -> None:
    del config["defaults"]["retry"]


def raise_alarm(rig: Rig) -> None:
    with rig.fault("memory alarm") as fault:
        fault.silences(len(rig.workers))
        rig.stack.rabbitmqctl("set_vm_memory_high_watermark", "absolute", "1")
        try:
            rig.see_logged(fault, '"rabbitmq_blocked"')
        finally:
            rig.stack.rabbitmqctl("set_vm_memory_high_watermark", "0.4")


def delete(part: str, delete_it: Callable[[RabbitSide], None], rig: Rig) -> None:
    with rig.fault(f"{part} deleted and made again") as fault:
        delete_it(rig.side)
        rig.see_logged(fault, '"target_held"')
        rig.side.make(rig.side.target)


def fill_queue(rig: Rig) -> None:
    side = rig.side
    with rig.fault("queue full, reject-publish") as fault:
        rig.stack.rabbitmqctl("set_policy", side.name, f"^{side.name}$", LEAST_LENGTH)
        side.pause()
        rig.see_logged(fault, '"retried"')
        side.resume()
        rig.stack.rabbitmqctl("clear_policy", side.name)


def freeze_beyond_heartbeat(rig: Rig) -> None:
    with rig.fault("broker frozen beyond the heartbeat") as fault, rig.stack.frozen("rabbitmq"):
        fault.silences(len(rig.workers))
        rig.see_logged(fault, '"rabbitmq_not_connected"')


def close_connections(rig: Rig) -> None:
    with rig.fault("connections closed by the management side") as fault:
        connected = rig.logged('"rabbitmq_connected"')
        rig.stack.rabbitmqctl("close_all_connections", "a fault test")
        rig.take(
            fault, "workers connected anew", lambda: rig.logged('"rabbitmq_connected"') > connected
        )


STAY_AWAY = partial(kill_follower, GONE_S)
DELETE_EXCHANGE = partial(delete, "exchange", lambda side: side.remove(side.target))
TOLD = {"brokers": RABBITMQ, "arrange": unhurried}  # by the broker: no deadline has to pass
SCENARIOS = [
    Scenario("broker_killed", kill, arrange=unhurried),
    Scenario("broker_frozen", freeze),
    Scenario("topic_deleted", delete_topic, brokers=KAFKA),
    Scenario("topic_too_small", shrink_topic, brokers=KAFKA, may_bury=True),
    Scenario("topic_denied", deny, brokers=KAFKA),
    Scenario("not_enough_replicas", partial(kill_follower, 0), **IN_CLUSTER),
    Scenario("replicas_gone", STAY_AWAY, over_s=20, arrange=retry_by_default, **IN_CLUSTER),
    Scenario("memory_alarm", raise_alarm, brokers=RABBITMQ),
    Scenario("exchange_deleted", DELETE_EXCHANGE, **TOLD),
    Scenario("binding_deleted", partial(delete, "binding", RabbitSide.unbind), **TOLD),
    Scenario("queue_full", fill_queue, brokers=RABBITMQ, may_bury=True),
    Scenario("heartbeat_missed", freeze_beyond_heartbeat, brokers=RABBITMQ),
    Scenario("connections_closed", close_connections, brokers=RABBITMQ),
]
