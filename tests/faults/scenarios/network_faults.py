"""The links between worker and store, producer and store, worker and broker: each broken."""

import time
from collections.abc import Callable
from functools import partial

from duebridge.store.server.scripts import script
from tests.faults.rig import Fault, Rig
from tests.faults.scenario import Scenario
from tests.faults.servers.proxy import Link

HOLE_S = 4.0  # beyond the publish deadline and a lease, within the client's patience
SLOW_S = 0.2
LOST = 3
BIG_REQUEST_BYTES = 400  # of a broker's client: it carries messages
# Whose replies are lost: claims and acks by the worker, envelopes by the producer.
STORE_CALLS = {"store": ("claim", "ack"), "producer": ("schedule",)}


def link_of(rig: Rig, party: str) -> Link:
    return rig.stack.links[rig.side.service if party == "broker" else party]


def cut(rig: Rig, link: Link, party: str, fault: Fault) -> None:
    if ended := link.cut():
        fault.effect = f"{ended} connections ended"


def reset(rig: Rig, link: Link, party: str, fault: Fault) -> None:
    if ended := link.cut(by_reset=True):
        fault.effect = f"{ended} connections reset"


def hole(rig: Rig, link: Link, party: str, fault: Fault) -> None:
    before, until = link.held_bytes, time.monotonic() + HOLE_S
    link.hole()
    rig.take(fault, "bytes held back", lambda: link.held_bytes > before)
    rig.see(lambda: time.monotonic() > until)
    link.heal()


def slow(rig: Rig, link: Link, party: str, fault: Fault) -> None:
    before = link.slowed
    link.slow(SLOW_S)
    rig.take(fault, "chunks slowed", lambda: link.slowed > before + 20)
    link.heal()


def lose_replies(rig: Rig, link: Link, party: str, fault: Fault) -> None:
    before, fault.strikes = link.lost_replies, LOST
    shas = [script(name).sha.encode() for name in STORE_CALLS.get(party, ())]

    def carries_work(request: bytes) -> bool:
        if shas:
            return any(sha in request for sha in shas)
        return len(request) > BIG_REQUEST_BYTES

    link.drop_replies(LOST, carries_work)
    rig.take(fault, f"{LOST} replies lost", lambda: link.lost_replies >= before + LOST)
    link.heal()


def break_link(
    party: str, kind: str, how: Callable[[Rig, Link, str, Fault], None], rig: Rig
) -> None:
    with rig.fault(f"link to the {party} {kind}") as fault:
        if party == "broker" and how in (hole, slow):
            fault.silences(len(rig.workers))
        how(rig, link_of(rig, party), party, fault)


KINDS = {
    "cut": cut,
    "reset": reset,
    "black_holed": hole,
    "slowed": slow,
    "replies_lost": lose_replies,
}
SCENARIOS = [
    Scenario(
        f"{party}_link_{kind}", partial(break_link, party, kind, how), through=frozenset({party})
    )
    for party in ("store", "producer", "broker")
    for kind, how in KINDS.items()
]
