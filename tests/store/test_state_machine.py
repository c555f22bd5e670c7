"""Any order of calls by two workers, a producer and an operator, against a plain model.

`DUEBRIDGE_EXAMPLES` and `DUEBRIDGE_STEPS` make it longer than it is by default.
"""

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bridge.reasons import Reason
from bridge.store.delay_store import Burial, Retry
from bridge.store.replies import Settled
from tests.store.conftest import Opened
from tests.store.desk import LEASE_MS, YEAR_MS, Desk, envelope
from tests.store.invariants import STATES
from tests.store.model import POISON, Model, expected_of, kept

EXAMPLES = int(os.environ.get("DUEBRIDGE_EXAMPLES", "100"))
STEPS = int(os.environ.get("DUEBRIDGE_STEPS", "40"))

IDS = st.sampled_from("abc")
WORKERS = st.integers(0, 1)
DELAYS = st.sampled_from([0, 1, 500, 1000])
LIMITS = st.sampled_from([1, 2, 1000])
CONTENTS = st.tuples(DELAYS, st.sampled_from([None, None, 1000, 40_000]), st.integers(0, 1))


class Leases:
    """What a worker was ever given; the latest are asked for most often."""

    def __init__(self) -> None:
        self._given: list[tuple[bytes, list[str]]] = []

    def add(self, token: bytes, ids: list[str]) -> None:
        if ids:
            self._given.append((token, ids))

    def pick(self, age: int, part: int) -> tuple[bytes, list[str]]:
        if not self._given:
            return b"never given!", ["a"]
        token, ids = self._given[-1 - age % len(self._given)]
        return token, [name for n, name in enumerate(ids) if part >> n & 1] or ids


def when(*states: str) -> Any:
    """A rule for when an envelope is in one of these states; without it, little happens."""
    return precondition(lambda self: any(self.model.within(state) for state in states))


class Machine(RuleBasedStateMachine):
    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk, self.store = desk, desk.store
        self.model = Model(desk.clock())
        self.claims = [Leases(), Leases()]
        self.shunts = [Leases(), Leases()]
        self.generation = 0

    @initialize(delay=DELAYS)
    def start(self, delay: int) -> None:
        for name in "abc":
            self.schedule(name, (delay, None, 0), False)
        self.desk.clock.advance(delay)
        self.model.now = self.desk.clock()
        self.promote_and_claim(1000)

    @rule(id=IDS, content=CONTENTS, replace=st.booleans())
    def schedule(self, id: str, content: tuple[int, int | None, int], replace: bool) -> None:
        delay, keep, body = content
        expires = None if keep is None else f"{keep}ms"
        given = envelope(id, f"{delay}ms", expires=expires, body=bytes([body]))
        answers = self.store.schedule([given], max_delay_ms=YEAR_MS, replace=replace)
        expected = self.model.schedule(id, content, replace)
        assert [each.status for each in answers] == [expected]
        if expected in ("accepted", "replaced", "duplicate"):
            assert answers[0].due_at_ms == self.model.lives[id].due
        if expected in ("accepted", "replaced"):
            self.take_generation(id)

    @rule(ms=st.sampled_from([1, 500, 1000, LEASE_MS, 2 * LEASE_MS]))
    def advance(self, ms: int) -> None:
        self.desk.clock.advance(ms)
        self.model.now = self.desk.clock()

    @rule(early=st.integers(0, 1))
    def advance_to_the_next_score(self, early: int) -> None:
        scores = self.model.scores()
        if scores and scores[0] - early > self.model.now:
            self.advance(scores[0] - early - self.model.now)

    @when("pending", "retry")
    @rule(limit=LIMITS)
    def promote(self, limit: int) -> None:
        assert self.store.promote(limit)[1] == self.model.promote(limit)

    @when("ready", "suspect")
    @rule(worker=WORKERS, limit=LIMITS, alone=st.booleans())
    def claim(self, worker: int, limit: int, alone: bool) -> None:
        dues = {name: life.due for name, life in self.model.lives.items()}
        claim = self.store.claim(limit, LEASE_MS, alone=alone)
        ids = [each.id for each in claim.leased]
        assert ids == self.model.claim(limit, LEASE_MS, alone=alone)
        assert all(dues[name] <= self.model.now for name in ids), "claimed before due"
        self.model.hold(ids, claim.token)
        self.claims[worker].add(claim.token, ids)

    @when("pending", "retry", "ready")
    @rule(limit=LIMITS)
    def promote_and_claim(self, limit: int) -> None:
        self.promote(limit)
        self.claim(0, limit, False)

    @when("suspect")
    @rule(worker=WORKERS)
    def claim_alone(self, worker: int) -> None:
        self.claim(worker, 1, True)

    @when("suspect")
    @rule()
    def fail_alone(self) -> None:
        self.claim_alone(0)
        self.settle(0, 0, 1, "failed", 500)
        self.advance(500)
        self.promote(1000)

    @when("unack")
    @rule(age=st.integers(0, 1), how=st.sampled_from(["failed", "unsure", "bury"]))
    def settle_the_latest(self, age: int, how: str) -> None:
        self.settle(0, age, 7, how, 500)

    @rule(
        worker=WORKERS,
        age=st.integers(0, 3),
        part=st.integers(1, 15),
        how=st.sampled_from(["ack", "failed", "unsure", "release", "bury"]),
        delay=DELAYS,
    )
    def settle(self, worker: int, age: int, part: int, how: str, delay: int) -> None:
        token, ids = self.claims[worker].pick(age, part)
        stale = self.model.settle(how, token, ids, delay)
        assert self.settled(how, token, ids, delay).stale == stale

    def settled(self, how: str, token: bytes, ids: list[str], delay: int) -> Settled:
        if how == "ack":
            return self.store.ack(token, ids)
        if how == "release":
            return self.store.release(token, ids)
        if how == "bury":
            return self.store.bury(
                token, [Burial(name, Reason.INVALID, True, False, "E\nx") for name in ids]
            )
        failed = how == "failed"
        return self.store.retry(
            token, [Retry(name, delay, failed, not failed, "E") for name in ids]
        )

    @rule(counted=st.sampled_from([True, True, False]))
    def reclaim(self, counted: bool) -> None:
        reclaimed = self.store.reclaim(poison=POISON, counted=counted)[1]
        assert reclaimed == self.model.reclaim(counted=counted)

    @when("unack")
    @rule()
    def run_out(self) -> None:
        self.advance(LEASE_MS)
        self.reclaim(True)

    @when("dead")
    @rule(worker=WORKERS, limit=LIMITS)
    def shunt(self, worker: int, limit: int) -> None:
        claim = self.store.shunt(limit, LEASE_MS)
        ids = [each.id for each in claim.leased]
        assert ids == self.model.shunt(limit, LEASE_MS)
        self.model.hold(ids, claim.token)
        self.shunts[worker].add(claim.token, ids)

    @when("dead")
    @rule(worker=WORKERS, age=st.integers(0, 3), part=st.integers(1, 15), done=st.booleans())
    def end_shunt(self, worker: int, age: int, part: int, done: bool) -> None:
        token, ids = self.shunts[worker].pick(age, part)
        stale = self.model.settle("ack" if done else "postpone", token, ids, 500)
        settled = (
            self.store.ack(token, ids, shunted=True)
            if done
            else self.store.postpone(token, ids, 500)
        )
        assert settled.stale == stale

    @rule(id=IDS)
    def cancel(self, id: str) -> None:
        assert self.store.cancel(id) == self.model.cancel(id)

    @rule(id=IDS, delay=DELAYS)
    def reschedule(self, id: str, delay: int) -> None:
        expected = self.model.reschedule(id, delay)
        answer = self.store.reschedule(id, f"+{delay}", YEAR_MS)
        assert answer == (expected, self.model.now + delay)
        if expected == "rescheduled":
            self.take_generation(id)

    @when("dead")
    @rule(id=IDS, delay=DELAYS)
    def replay(self, id: str, delay: int) -> None:
        expected = self.model.replay(id, delay)
        assert self.store.replay([id], [delay]) == [expected]
        if expected == "replayed":
            self.take_generation(id)

    @when("dead")
    @rule(id=IDS)
    def drop(self, id: str) -> None:
        assert self.store.drop([id]) == [self.model.drop(id)]

    @rule()
    def flush_scripts(self) -> None:
        self.desk.client.script_flush()

    @rule()
    def forget(self) -> None:
        self.store.forget()

    def take_generation(self, id: str) -> None:
        generation = self.desk.record_of(id).generation
        assert generation > self.generation, "a generation must rise"
        self.generation = self.model.lives[id].generation = generation

    @invariant()
    def store_is_as_the_model_says(self) -> None:
        found = self.desk.check()
        scores = {name.decode(): (state, score) for state in STATES for name, score in found[state]}
        lives = self.model.lives
        assert scores == {name: (life.state, life.score) for name, life in lives.items()}
        for name, life in lives.items():
            assert kept(found, name.encode()) == expected_of(life), name

    def teardown(self) -> None:
        self.desk.delete()


def test_store_agrees_with_the_model_whatever_happens(open_desk: Opened) -> None:
    run_state_machine_as_test(
        lambda: Machine(open_desk()),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
