"""Targets that are missing, slow or without a leader, beside others that are well."""

import time
from collections.abc import Sequence
from functools import partial
from itertools import count

from kafka.partitioner.default import murmur2

from tests.faults.judgement import Look
from tests.faults.rig import Fault, Rig
from tests.faults.scenario import IN_CLUSTER, KAFKA, RABBITMQ, Bound, Config, Scenario
from tests.faults.servers.kafka_cluster import FOLLOWER
from tests.faults.traffic import ROUTE
from tests.support.model.histories import now_ms

HOLD_S, SLACK_S = 8.0, 4.0
OWN, HELD, ROUNDS, FAN_OUT = 50, 10_000, 10, 1000
PARTITIONS, LEADERLESS, LEADERLESS_S = 12, 5, 10.0
PER_S, WIRE_BYTES = 80, 1250  # of a slow link, a message of 1,000 bytes


# ── own targets that are missing ────────────────────────────────────────────────────────────────


def open_missing(words: Sequence[str], hold: str, rig: Rig, config: Config) -> None:
    """Let envelopes go to targets of their own that are not there yet."""
    rig.targets = {word: rig.side.open(f"-{word}", is_missing=True) for word in words}
    config["defaults"]["on_target_error"] = {"hold": hold}
    config["routes"][ROUTE]["allow_targets"] = list(rig.targets.values())


def see_set_aside(rig: Rig, fault: Fault) -> None:
    rig.take(fault, "some wait in retry", lambda: rig.store.poll()["retry"] > 0)


def miss_two_of_three(rig: Rig) -> Look:
    """One is made in time; what waits for the other is buried when its hold is over."""
    with rig.fault("two of three targets missing") as fault:
        began = time.monotonic()
        for word, target in rig.targets.items():
            rig.producer.send(word, OWN, target=target, delay="0s")
        see_set_aside(rig, fault)
        rig.sleep_until(began + HOLD_S / 2)
        rig.side.make(rig.targets["late"])
        well_ms = now_ms()
        rig.sleep_until(began + HOLD_S + SLACK_S)
    return lambda seen: [
        *seen.well("traffic"),
        *seen.well("late", well_ms),
        *seen.buried("gone", HOLD_S, HOLD_S + SLACK_S),
        seen.missing("gone", dead=True),
    ]


def hold_many(rig: Rig) -> Look:
    """What waits for a missing target stands before what is due later for another."""
    rig.producer.send("held", HELD, target=rig.targets["gone"], at=now_ms() + 1500)
    with rig.fault(f"{HELD:,} held for a missing target") as fault:
        see_set_aside(rig, fault)
        for number in range(ROUNDS):
            rig.producer.send(f"well-{number}", 1, delay="0s")
            time.sleep(0.5)
        rig.side.make(rig.targets["gone"])
    return lambda seen: [*seen.well("well"), seen.missing("held")]


def share_target(rig: Rig, config: Config) -> None:
    """Give two routes the same target, which is missing; the traffic's is well."""
    target = rig.side.open("-shared", is_missing=True)
    rig.targets = {"first": target, "second": target}
    for name in rig.targets:
        config["routes"][name] = {"target": target, "dead_letter": rig.side.dead_letter}


def miss_shared(rig: Rig) -> Look:
    with rig.fault("target of two routes missing") as fault:
        for number in range(ROUNDS):
            for route in rig.targets:
                rig.producer.send(f"{route}-{number}", OWN, route, delay="0s")
            time.sleep(0.3)
        see_set_aside(rig, fault)
        rig.side.make(rig.targets["second"])
        well_ms = now_ms()
    return lambda seen: [
        *seen.well("traffic"),
        *seen.well("first", well_ms),
        *seen.well("second", well_ms),
    ]


# ── slow, or in part away ───────────────────────────────────────────────────────────────────────


def all_defaults(rig: Rig, config: Config) -> None:
    del config["worker"], config["defaults"]


def use_librdkafka(rig: Rig, config: Config) -> None:
    all_defaults(rig, config)
    config["brokers"]["side"]["client"] = "librdkafka"


def slow_link(rig: Rig) -> Look:
    """All due at once on a link that takes longer than the publish deadline for them."""
    link = rig.stack.links[rig.side.service]
    link.throttle(PER_S * WIRE_BYTES)
    rig.producer.send("slow", rig.count, body_bytes=1000, at=now_ms() + 2000)
    with rig.fault(f"{rig.count:,} due at once, {PER_S} a second pass") as fault:
        began, before = time.monotonic(), link.slowed
        rig.take(fault, "link throttled", lambda: link.slowed > before + 20)
        rig.see(rig.is_empty, 1.5 * rig.count / PER_S + 10)
        took_s = time.monotonic() - began
        link.heal()
    return lambda seen: [
        seen.missing("slow"),
        Bound("all but empty after, s", round(took_s, 1), 1.4 * rig.count / PER_S + 10),
    ]


def spread_leaders(rig: Rig, config: Config) -> None:
    """Have one of twelve partitions on the broker that will be killed, the others on the other."""
    target = rig.side.open("-parts", is_missing=True)
    leaders = {each: [FOLLOWER if each == LEADERLESS else 1] for each in range(PARTITIONS)}
    rig.side.create(target["topic"], assignments=leaders)
    config["routes"][ROUTE]["target"] = target
    config["defaults"]["retry"]["max_attempts"] = 3


def key_of(partition: int) -> bytes:
    """Return a key that every Kafka client takes to this partition."""
    keys = (b"%d" % number for number in count())
    return next(each for each in keys if (murmur2(each) & 0x7FFFFFFF) % PARTITIONS == partition)


def kill_leader(rig: Rig) -> Look:
    rig.producer.send("before", rig.count, key=key_of(0), at=now_ms() + 1000)
    with rig.fault("one partition of twelve without a leader") as fault:
        rig.stack.cluster.kill(FOLLOWER)
        until, numbers = time.monotonic() + LEADERLESS_S, count()
        while time.monotonic() < until:
            number = next(numbers)
            rig.producer.send(f"none-{number}", 20, key=key_of(LEADERLESS), delay="0s")
            rig.producer.send(f"well-{number}", 20, key=key_of(0), delay="0s")
            time.sleep(0.3)
        see_set_aside(rig, fault)
        rig.stack.cluster.start(FOLLOWER)
    return lambda seen: [seen.late("well"), seen.missing("well"), seen.missing("none")]


# ── a nack is not "never delivered" ─────────────────────────────────────────────────────────────


def fan_out(rig: Rig, config: Config) -> None:
    """Have every message go to a queue that takes it, and to one that is full."""
    target = rig.side.open("-fan", is_missing=True)
    rig.side.make(target, "fanout")
    full = {"x-max-length": 1, "x-overflow": "reject-publish", "x-expires": 600_000}
    with rig.side.connected() as connection:
        channel = connection.channel()
        queue = channel.queue_declare(f"{rig.side.name}-full", durable=True, arguments=full)
        channel.basic_publish("", queue.method.queue, b"full")
        channel.queue_bind(queue.method.queue, target["exchange"])
    config["routes"][ROUTE]["target"] = target
    config["defaults"]["retry"] = {"backoff": "fixed", "initial": "1h"}


def cancel_nacked(rig: Rig) -> Look:
    ids = rig.producer.send("out", FAN_OUT, at=now_ms() + 1000)
    rig.in_hand = lambda: rig.store.poll().total()  # all may be nacked before anybody looks
    with rig.fault("one queue of a fan-out full, reject-publish") as fault:
        rig.take(fault, "all nacked", lambda: rig.store.poll()["retry"] == len(ids))
        answers = [rig.producer.cancel(each) for each in ids]
    return lambda seen: [
        Bound("answered cancelled with a copy out", answers.count("cancelled"), 0),
        seen.missing("out"),
    ]


MISSING = partial(open_missing, ("gone", "late"), f"{HOLD_S:g}s")
HELD_LONG = partial(open_missing, ("gone",), "10m")
SURE = {"may_repeat": False, "may_count": False}
SLOW = {"workers": 1, "through": frozenset({"broker"}), "over_s": 0.0, **SURE}
BURIED = {"may_bury": True, **SURE}
RDKAFKA = {"brokers": KAFKA, "arrange": use_librdkafka, **SLOW}
SCENARIOS = [
    Scenario("own_target_missing", miss_two_of_three, over_s=10, arrange=MISSING, **BURIED),
    Scenario("many_held", hold_many, over_s=0, arrange=HELD_LONG, **SURE),
    Scenario("shared_target_missing", miss_shared, over_s=10, arrange=share_target, **SURE),
    Scenario("slow_link", slow_link, arrange=all_defaults, **SLOW),
    Scenario("slow_link_librdkafka", slow_link, **RDKAFKA),
    Scenario("partition_leaderless", kill_leader, over_s=0, arrange=spread_leaders, **IN_CLUSTER),
    Scenario("fan_out_full", cancel_nacked, brokers=RABBITMQ, over_s=0, arrange=fan_out),
]
