"""Dead letters whose target is missing, too small, slow or away, or that a stop finds on their way.

Letters are envelopes that expired before a worker came. What is alive must not wait for them.
"""

import signal
import time
from functools import partial

from tests.faults.judgement import SLOWER, Look
from tests.faults.rig import Rig
from tests.faults.scenario import BROKERS, KAFKA, Bound, Config, Scenario
from tests.faults.scenarios.target_faults import PER_S, WIRE_BYTES, all_defaults
from tests.faults.servers.brokers import BrokerSide
from tests.faults.traffic import ROUTE
from tests.support.model.histories import now_ms

LETTERS, BIG, BIG_BYTES, LEAST_BYTES = 300, 300, 3000, "1000"
# Until all letters came, their target or broker well again.
AGAIN_S, BROKER_AGAIN_S = 3.0 * SLOWER, 5.0 * SLOWER
AWAY_S, SETTLED_S = 6.0, 2.0  # RabbitMQ may lose a queue that it made just before its kill
ON_THEIR_WAY, STOPS, SLOW_S = 3000, 5, 0.05
PATIENT_S = 5  # a publish deadline for a link on which each chunk takes its time
# The rig's drain, the deadline, and the contract's 2 s.
STOPS_WITHIN_S = 10 + PATIENT_S + 2 * SLOWER


def send_letters(rig: Rig, word: str, count: int, body_bytes: int = 40) -> None:
    rig.producer.send(word, count, delay="0s", expires="1ms", body_bytes=body_bytes)


def no_letter_target(rig: Rig, config: Config) -> None:
    rig.targets["dead"] = rig.side.open("-lost", dead=True, is_missing=True)
    config["routes"][ROUTE]["dead_letter"] = rig.targets["dead"]


def miss_target(rig: Rig) -> Look:
    send_letters(rig, "letter", LETTERS)
    started_ms = rig.start_workers(2)
    with rig.fault("dead-letter target missing") as fault:
        rig.take(fault, "letters wait", lambda: rig.store.poll()["dead"] > 0)
        time.sleep(AWAY_S)
        rig.side.make(rig.targets["dead"])
        well_ms = now_ms()
    return lambda seen: [
        *seen.well("traffic", started_ms),
        seen.late("letter", AGAIN_S, well_ms, dead=True),
        seen.missing("letter", dead=True),
    ]


def small_letter_target(rig: Rig, config: Config) -> None:
    target = rig.side.open("-small", dead=True, is_missing=True)
    limit = {"max.message.bytes": LEAST_BYTES}
    rig.side.create(target["topic"], num_partitions=1, replication_factor=1, configs=limit)
    config["routes"][ROUTE]["dead_letter"] = target


def reject_letters(rig: Rig) -> Look:
    """What can be sent goes on past what never can, which stays dead in the store."""
    send_letters(rig, "big", BIG, BIG_BYTES)
    started_ms = rig.start_workers(2)
    with rig.fault("dead-letter target rejects the big ones") as fault:
        rig.take(fault, "all are dead", lambda: rig.store.poll()["dead"] >= BIG)
        time.sleep(1)
        sent_ms = now_ms()
        send_letters(rig, "letter", LETTERS)
    return lambda seen: [
        *seen.well("traffic", started_ms),
        seen.late("letter", AGAIN_S, sent_ms, dead=True),
        seen.missing("letter", dead=True),
        Bound("big: not kept", BIG - sum(each.startswith("big") for each in seen.history.held), 0),
    ]


def letters_by_link(rig: Rig, config: Config) -> None:
    """Have all defaults, many shards, and the letters go to the same server by a link."""
    all_defaults(rig, config)
    config["routes"][ROUTE]["shards"] = 16
    send_to(rig.open_side(rig.side.service, "letters", linked=True), config)


def send_to(letters: BrokerSide, config: Config) -> None:
    config["brokers"]["letters"] = letters.settings
    config["routes"][ROUTE]["dead_letter"] = letters.dead_letter


def slow_letters(rig: Rig) -> Look:
    link = rig.stack.links[rig.side.service]
    link.throttle(PER_S * WIRE_BYTES)
    send_letters(rig, "letter", rig.count // 2, 1000)
    started_ms = rig.start_workers(1)
    with rig.fault(f"{rig.count // 2:,} dead letters, {PER_S} a second pass") as fault:
        before = link.slowed
        rig.take(fault, "link throttled", lambda: link.slowed > before + 20)
        rig.see(lambda: not rig.store.poll()["dead"], 30)
        link.heal()
    return lambda seen: [*seen.well("traffic", started_ms), seen.missing("letter", dead=True)]


def letters_elsewhere(rig: Rig, config: Config) -> None:
    """Have the letters go to the other broker."""
    other = next(each for each in BROKERS if each != rig.side.service)
    send_to(rig.open_side(other, "letters"), config)


def lose_letters_broker(rig: Rig) -> Look:
    rig.start_workers(2)
    time.sleep(SETTLED_S)
    send_letters(rig, "first", ON_THEIR_WAY)
    service = rig.sides[-1].service
    with rig.fault("broker of the dead letters killed") as fault:
        rig.stack.signal(service, signal.SIGKILL)
        send_letters(rig, "letter", LETTERS)
        rig.take(fault, "letters wait", lambda: rig.store.poll()["dead"] > 0)
        time.sleep(AWAY_S)
        rig.stack.up(service)
        well_ms = now_ms()
    return lambda seen: [
        seen.late("traffic", BROKER_AGAIN_S),  # a broker that starts takes the cores
        seen.missing("traffic"),
        seen.late("letter", BROKER_AGAIN_S, well_ms, dead=True),
        *(seen.missing(word, dead=True) for word in ("first", "letter")),
    ]


def be_patient(rig: Rig, config: Config) -> None:
    """Have a window's half of a deadline be longer than a round trip on the link."""
    config["worker"]["publish_deadline"] = f"{PATIENT_S}s"
    config["defaults"]["lease"] = "9s"


def stop_amid_letters(rig: Rig) -> Look:
    """Stop one worker after the other while letters are on their way, by a link that takes time."""
    rig.stack.links[rig.side.service].slow(SLOW_S)
    send_letters(rig, "letter", ON_THEIR_WAY)
    took_s = []
    for _ in range(STOPS):
        rig.start_workers(1)
        with rig.fault("SIGTERM with dead letters on their way") as fault:
            rig.see(partial(are_going, rig, []), AWAY_S)
            took_s.append(rig.seconds_to_leave(rig.workers[-1]))
            fault.effect = f"exit {rig.workers[-1].wait()}"
    rig.start_workers(1)
    return lambda seen: [
        Bound("exit by SIGTERM, s", max(took_s), STOPS_WITHIN_S),
        seen.missing("traffic"),
        seen.missing("letter", dead=True),
    ]


def are_going(rig: Rig, counts: list[int]) -> bool:
    """Tell whether there are fewer dead ones than there were."""
    counts.append(rig.store.poll()["dead"])
    return counts[-1] < max(counts)


OF_LETTERS = {"workers": 0, "may_bury": True, "over_s": 8.0}
SURE = {**OF_LETTERS, "may_repeat": False}
SMALL = {"brokers": KAFKA, "keeps_dead": BIG, "arrange": small_letter_target}
LINKED = {"through": frozenset({"broker"})}
SCENARIOS = [
    Scenario("letters_missing", miss_target, arrange=no_letter_target, **SURE),
    Scenario("letters_rejected", reject_letters, **SMALL, **SURE),
    Scenario("letters_slow", slow_letters, arrange=letters_by_link, **SURE),
    Scenario("letters_elsewhere", lose_letters_broker, arrange=letters_elsewhere, **OF_LETTERS),
    Scenario("stop_amid_letters", stop_amid_letters, STOPS, arrange=be_patient, **LINKED, **SURE),
]
