"""Any order of calls by two workers, a producer and an operator, against a plain model.

Processes crash between any two calls, requests and replies are lost, and what was not answered is
asked again, at once or after others. After every call three things are held against the store: the
model (`model`), what changed and what the journal says of it (`steps`), and what producers and
brokers saw (`ledger`). `DUEBRIDGE_EXAMPLES` and `DUEBRIDGE_STEPS` make it longer than it is by
default. A quarter of the examples do for a Cluster and a set: their scripts are those of Redis, and
that each call reaches them is soon seen.
"""

import os
from collections.abc import Sequence
from typing import ClassVar
from zlib import crc32

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, run_state_machine_as_test

from duebridge.store.server.connection import Connection
from tests.store.conftest import Opened
from tests.store.properties import calls
from tests.store.properties.calls import Call, Copy, Held
from tests.store.properties.ledger import Story
from tests.store.properties.lives import Content
from tests.store.properties.machine import (
    FATES,
    FINE,
    PROCESSES,
    Machine,
    Process,
    Wire,
    deed,
    while_any,
    within,
)
from tests.support.desk import LEASE_MS, YEAR_MS, Desk

EXAMPLES = int(os.environ.get("DUEBRIDGE_EXAMPLES", "40"))
STEPS = int(os.environ.get("DUEBRIDGE_STEPS", "50"))
SEED = os.environ.get("DUEBRIDGE_SEED", "")
ENGINES = ("redis", "valkey")
REPEAT_S = 10.0

IDS = st.sampled_from("abc")
WORKERS = st.integers(0, 1)
AGES = st.integers(0, 3)
PARTS = st.integers(1, 7)
DELAYS = st.sampled_from([0, 1, 500, 1000])
LIMITS = st.sampled_from([1, 2, 1000])
KEEPS = st.sampled_from([None, None, 1000, 40_000])
REMEMBERS = st.sampled_from([0, 0, 20_000])
CONTENTS = st.builds(Content, DELAYS, KEEPS, st.integers(0, 1), REMEMBERS, st.none())
FIRST_CONTENTS = st.builds(Content, DELAYS, st.none(), st.just(0), REMEMBERS, st.none())
BATCHES = st.lists(st.tuples(IDS, CONTENTS), min_size=1, max_size=2)

# What a worker may hear of a delivery, and how it settles then.
SETTLED = {
    "confirmed": "ack",
    "arrived": "unsure",
    "lost": "unsure",
    "to arrive later": "unsure",
    "exhausted, arrived": "bury_unsure",
    "failed": "failed",
    "target failed": "target_failed",
    "held": "set_aside",
    "away": "release",
    "rejected": "bury",
}
ARRIVED = ("confirmed", "arrived", "exhausted, arrived")
CAME_TO_NOTHING = ("failed", "target failed", "held", "away", "rejected")
HEARD = st.sampled_from(["confirmed", "confirmed", *SETTLED])
FIRST_HEARD = st.sampled_from(["rejected", "exhausted, arrived", "arrived", "failed", "confirmed"])


class Bridge(Machine):
    """Two workers, and a client that is a producer and an operator."""

    DRAWN: ClassVar = {
        "id": IDS,
        "given": BATCHES,
        "worker": WORKERS,
        "who": st.integers(0, PROCESSES - 1),
        "age": AGES,
        "which": AGES,
        "part": PARTS,
        "delay": DELAYS,
        "limit": LIMITS,
        "promote": LIMITS,
        "heard": HEARD,
        "fate": FATES,
        **dict.fromkeys(("replace", "alone", "is_sent"), st.booleans()),
    }

    def __init__(self, desk: Desk, wire: Wire) -> None:
        super().__init__(desk, wire)
        self.copies: list[Copy] = []
        self.rows: list[Copy] = []
        self.in_the_air: list[Story] = []

    @initialize(
        content=FIRST_CONTENTS,
        has_cold_tier=st.booleans(),
        heard=st.tuples(FIRST_HEARD, FIRST_HEARD, FIRST_HEARD),
        run_outs=st.integers(0, 2),
        is_shunted=st.booleans(),
    )
    def start(
        self,
        content: Content,
        has_cold_tier: bool,
        heard: tuple[str, ...],
        run_outs: int,
        is_shunted: bool,
    ) -> None:
        """Bring three envelopes to some place: what is rare would else be rarer."""
        cold_tier_ms = YEAR_MS * has_cold_tier
        self.store = self.desk.again(repeat_for_s=REPEAT_S, cold_tier_ms=cold_tier_ms)
        self.model.cold_tier = cold_tier_ms
        if has_cold_tier:
            self.store.note("hydrated_until", 1, "first")
        self.schedule([(name, content) for name in "abc"], False, FINE)
        self.advance(content.delay)
        for _ in range(run_outs):
            self.promote_and_claim(1000)
            self.run_out()
        self.promote_and_claim(1000)
        for each in heard[: len(self.model.within("unack"))]:
            self.settle(0, 0, 1, each, 500, FINE)
        if is_shunted:
            self.shunt(0, 1000, FINE)

    # ── time, crashes, and what comes late ──────────────────────────────────────────────────────

    @deed(1, ms=st.sampled_from([1, 500, 1000, LEASE_MS, 2 * LEASE_MS]))
    def advance(self, ms: int) -> None:
        self.pass_time(ms)

    @deed(3, early=st.integers(0, 1))
    def advance_to_the_next_score(self, early: int) -> None:
        scores = self.model.scores()
        if scores and scores[0] - early > self.model.now:
            self.advance(scores[0] - early - self.model.now)

    @deed(1, when=lambda self: not all(each.is_idle for each in self.processes))
    def crash(self, who: int) -> None:
        self.processes[who] = Process()

    @deed(6, when=while_any("unanswered"))
    def repeat(self, who: int, age: int, fate: str) -> None:
        """A process asks again what was not answered: this very call, whatever came between."""
        process = self.one_with("unanswered", who)
        asked = process.unanswered.pop(-1 - age % len(process.unanswered))
        self.send(process, asked, fate)

    @deed(2, when=lambda self: self.in_the_air)
    def land(self) -> None:
        """A message reaches its target long after the worker stopped waiting for it."""
        self.ledger.arrive(self.in_the_air.pop())

    @deed(1)
    def flush_scripts(self) -> None:
        self.desk.client.script_flush()

    # ── a producer and an operator ──────────────────────────────────────────────────────────────

    @deed(3)
    def schedule(self, given: list[tuple[str, Content]], replace: bool, fate: str) -> None:
        self.ask(self.client, calls.schedule(given, replace), fate)

    @deed(2)
    def cancel(self, id: str, fate: str) -> None:
        rows = [n for n, row in enumerate(self.rows) if row.id == id]
        self.ask(self.client, calls.cancel(id, rows), fate)

    @deed(2)
    def reschedule(self, id: str, delay: int, fate: str) -> None:
        self.ask(self.client, calls.reschedule(id, delay), fate)

    @deed(4, when=within("dead"))
    def replay(self, which: int, delay: int, fate: str) -> None:
        self.ask(self.client, calls.replay(self.one_dead(which), delay), fate)

    @deed(2, when=within("dead"))
    def drop(self, which: int, fate: str) -> None:
        self.ask(self.client, calls.drop(self.one_dead(which)), fate)

    @deed(3, when=lambda self: self.model.cold_tier and self.model.within("pending"))
    def copy_to_the_cold_tier(self, which: int) -> None:
        pending = self.model.within("pending")
        name = pending[which % len(pending)]
        record, life = self.desk.record_of(name), self.model.lives[name]
        content = Content(0, None, life.content.body, life.content.remember, record.due_at_ms)
        batch = f"B{next(self.numbers)}"
        self.copies.append(Copy(batch, name, record.generation, life.version, content))

    @deed(4, when=lambda self: self.copies)
    def move_what_was_copied(self, delay: int) -> None:
        self.reschedule(self.copies[-1].id, delay, FINE)

    @deed(8, when=lambda self: self.copies)
    def demote(self, age: int, fate: str) -> None:
        """Go on with a batch, which may have been interrupted, or done before."""
        copy = self.copies[-1 - age % len(self.copies)]
        self.ask(self.client, calls.demote(copy, self.rows), fate)

    @deed(4, when=lambda self: self.rows)
    def hydrate(self, age: int, fate: str) -> None:
        place = len(self.rows) - 1 - age % len(self.rows)
        row = self.rows[place]
        self.ask(self.client, calls.hydrate(row.id, row.content, row.generation, place), fate)

    # ── workers ─────────────────────────────────────────────────────────────────────────────────

    @deed(2, when=within("pending", "retry"))
    def promote(self, worker: int, limit: int, fate: str) -> None:
        self.ask(self.processes[worker], calls.promote(limit), fate)

    @deed(4, when=within("ready", "suspect"))
    def claim(self, worker: int, limit: int, alone: bool, promote: int, fate: str) -> None:
        call = calls.claim(limit, alone=alone, promote=promote if promote > 1 else 0)
        self.take(self.processes[worker].claims, self.ask(self.processes[worker], call, fate))

    @deed(4, when=within("pending", "retry", "ready"))
    def promote_and_claim(self, limit: int) -> None:
        self.promote(0, limit, FINE)
        self.claim(0, limit, False, 1, FINE)

    @deed(3, when=within("suspect"))
    def claim_alone(self, worker: int) -> None:
        self.claim(worker, 1, True, 1, FINE)

    @deed(2, when=within("suspect"))
    def fail_alone(self) -> None:
        self.claim_alone(0)
        if self.processes[0].claims:
            self.settle(0, 0, 1, "failed", 500, FINE)
        self.advance(500)
        self.promote(0, 1000, FINE)

    @deed(2, when=while_any("claims"))
    def publish(self, worker: int, age: int, part: int, heard: str) -> None:
        held = latest(self.one_with("claims", worker).claims, age)
        self.hear(held, held.part(part), heard)

    @deed(8, when=while_any("claims"))
    def settle(self, worker: int, age: int, part: int, heard: str, delay: int, fate: str) -> None:
        """A worker settles what it published or does so first; it may have settled it before."""
        process = self.one_with("claims", worker)
        held = latest(process.claims, age)
        heard = held.heard.get(held.part(part)[0], heard)
        ids = [name for name in held.part(part) if held.heard.get(name, heard) == heard]
        self.hear(held, ids, heard)
        call = calls.settle(held, ids, SETTLED[heard], delay)
        self.say(process, call, [(held, name) for name in ids], fate)

    @deed(2, when=while_any("claims"))
    def ack_together(self, worker: int, fate: str) -> None:
        """A worker publishes the rest of its claims, and acks all that is confirmed in one call."""
        process = self.one_with("claims", worker)
        for held in process.claims:
            self.hear(held, list(held.stories), "confirmed")
        all_parts = [(held, name) for held in process.claims for name in held.stories]
        parts = [(held, name) for held, name in all_parts if held.heard[name] == "confirmed"]
        if parts:
            self.say(process, calls.ack_together(parts), parts, fate)

    @deed(2, when=within("retry"))
    def resume(self, worker: int, fate: str) -> None:
        self.ask(self.processes[worker], calls.resume(), fate)

    @deed(1, when=within("unack"), counted=st.sampled_from([True, True, False]))
    def reclaim(self, worker: int, counted: bool, fate: str) -> None:
        self.ask(self.processes[worker], calls.reclaim(counted), fate)

    @deed(2, when=within("unack"))
    def run_out(self) -> None:
        self.advance(LEASE_MS)
        self.reclaim(0, True, FINE)

    @deed(3, when=while_any("claims"), until=st.sampled_from([0, -1, 1]))
    def reject_and_shunt(self, worker: int, until: int) -> None:
        """A dead letter is on the way, and its lease about to end, or over."""
        self.settle(worker, 0, 7, "rejected", 0, FINE)
        self.shunt(worker, 1000, FINE)
        if until:
            self.advance(LEASE_MS + until)

    @deed(5, when=within("dead"))
    def shunt(self, worker: int, limit: int, fate: str) -> None:
        self.take(
            self.processes[worker].shunts,
            self.ask(self.processes[worker], calls.shunt(limit), fate),
        )

    @deed(5, when=while_any("shunts"))
    def end_shunt(self, worker: int, age: int, part: int, is_sent: bool, fate: str) -> None:
        process = self.one_with("shunts", worker)
        held = latest(process.shunts, age)
        how = held.heard.get(held.part(part)[0], "shunted" if is_sent else "postpone")
        ids = [name for name in held.part(part) if held.heard.setdefault(name, how) == how]
        if how == "shunted":
            for name in ids:
                self.ledger.letter_arrived(held.stories[name])
        call = calls.settle(held, ids, how, 500)
        self.say(process, call, [(held, name) for name in ids], fate)

    @deed(1, when=lambda self: self.model.memories)
    def forget(self, worker: int, fate: str) -> None:
        self.ask(self.processes[worker], calls.forget(), fate)

    # ── its parts ───────────────────────────────────────────────────────────────────────────────

    @property
    def client(self) -> Process:
        return self.processes[-1]

    def one_dead(self, which: int) -> str:
        dead = self.model.within("dead")
        return dead[which % len(dead)]

    def take(self, into: list[Held], held: Held | None) -> None:
        if held is not None and held.stories:
            into.append(held)

    def say(
        self, process: Process, call: Call, parts: Sequence[tuple[Held, str]], fate: str
    ) -> None:
        """Let a worker settle; what it has no answer for, it may settle again in another call."""
        self.ask(process, call, fate)
        if fate != FINE:
            return
        for held, name in parts:
            del held.stories[name]
        process.claims = [held for held in process.claims if held.stories]
        process.shunts = [held for held in process.shunts if held.stories]

    def hear(self, held: Held, ids: list[str], heard: str) -> None:
        """Let a broker answer what was not published before."""
        for name in ids:
            if name in held.heard:
                continue
            held.heard[name], story = heard, held.stories[name]
            if heard in ARRIVED:
                self.ledger.arrive(story)
            elif heard in CAME_TO_NOTHING:
                self.ledger.came_to_nothing(story)
            elif heard == "to arrive later":
                self.in_the_air.append(story)


def latest(given: list[Held], age: int) -> Held:
    return given[-1 - age % len(given)]


def test_store_agrees_with_the_model_whatever_happens(
    request: pytest.FixtureRequest, connection: Connection, open_desk: Opened
) -> None:
    kind = request.node.callspec.id

    @seed(crc32(f"{kind} {SEED}".encode()))  # others on each kind of server
    def machine() -> Bridge:
        wire = Wire(connection)
        return Bridge(open_desk(wire), wire)

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES if kind in ENGINES else -(-EXAMPLES // 4),
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate, Phase.shrink],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
