"""Everything that can happen to two envelopes and two workers, searched state by state.

The store is the plain model (`tests.store.model`) that the state machine holds against the real
scripts; workers and broker are as small as they can be. Faults have a budget: crashes, publishes
without an answer (arrived, lost, or still to arrive). A slow worker needs none: it may wait between
any two steps, beyond its lease as well, but begins no publish when the lease is over.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from tests.store.model import Life, Model

IDS = ("a", "b")
LEASE, HORIZON = 1, 3
MAX_FAILURES = 2
CONFIRMED, FAILED, ARRIVED, LOST, LATER = "confirmed", "failed", "arrived", "lost", "later"
UNKNOWN = (ARRIVED, LOST, LATER)
OUTCOMES = {"a": (CONFIRMED, FAILED, *UNKNOWN), "b": (CONFIRMED, LOST)}


@dataclass(frozen=True)
class Held:
    """What a worker has in hand: a claim, and once it has published what it heard of each."""

    token: bytes
    ids: tuple[str, ...]
    heard: tuple[str, ...] = ()


def clone(value: Any) -> Any:
    """Return a shallow copy, as `copy.copy` does in five times the time."""
    made = object.__new__(type(value))
    made.__dict__.update(value.__dict__)
    return made


@dataclass
class World:
    """One state; `promised` is the due instant that the producer was told last."""

    now: int
    lives: dict[str, Life]
    promised: dict[str, int]
    workers: tuple[Held | None, ...] = (None, None)
    in_the_air: tuple[str, ...] = ()
    arrived: dict[str, int] = field(default_factory=lambda: dict.fromkeys(IDS, 0))
    answers: dict[str, str] = field(default_factory=dict)  # to a cancel
    is_moved: bool = False  # rescheduled once
    crashes: int = 1
    unknowns: int = 2
    faults: int = 0
    claims: int = 0

    def key(self) -> Any:
        """Return what tells states apart: neither which worker is which, nor idle counters."""
        hands = sorted((held for held in self.workers if held), key=self._grip)
        tokens = {held.token: n for n, held in enumerate(hands)}
        lives = tuple(
            (name, life.state, life.score, life.due, tokens.get(life.token or b"", -1),
             life.token is None, life.failures, min(life.expiries, 2), life.singles, life.is_unsure,
             life.is_cancelled, life.is_single)
            for name, life in sorted(self.lives.items())
        )  # fmt: skip
        broker = (self.in_the_air, tuple(min(self.arrived[name], 2) for name in IDS))
        producer = (tuple(sorted(self.answers.items())), self.is_moved)
        left = (self.crashes, self.unknowns, self.faults > 0)
        return self.now, lives, tuple(map(self._grip, hands)), broker, producer, left

    def _grip(self, held: Held) -> Any:
        lives = [self.lives.get(name) for name in held.ids]
        return held.ids, held.heard, tuple(life and life.token == held.token for life in lives)

    def copy(self) -> "World":
        world = clone(self)
        world.lives = {name: clone(life) for name, life in self.lives.items()}
        world.promised, world.arrived = dict(self.promised), dict(self.arrived)
        world.answers = dict(self.answers)
        return world

    @property
    def store(self) -> Model:
        return Model(self.now, self.lives)

    def put(self, worker: int, held: Held | None) -> None:
        hands = list(self.workers)
        hands[worker] = held
        self.workers = tuple(hands)

    # ── what may happen ─────────────────────────────────────────────────────────────────────────

    def acts(self) -> Iterator[tuple[str, Any]]:
        """Yield every step from here, by name."""
        if self.now < HORIZON:
            yield "a tick", World.tick
        yield "promote", lambda world: world.store.promote(1000)
        yield "reclaim", World.reclaim
        for worker, held in enumerate(self.workers):
            yield from self.acts_of(worker, held)
        if "a" not in self.answers:
            yield "cancel", lambda world: world.cancel("a")
        if not self.is_moved:
            yield "reschedule", lambda world: world.reschedule("a")
        for name in self.in_the_air:
            yield f"late arrival of {name}", lambda world, name=name: world.land(name)

    def acts_of(self, worker: int, held: Held | None) -> Iterator[tuple[str, Any]]:
        if held is None:
            for limit, alone in ((1, False), (2, False), (1, True)):
                yield (
                    f"claim {limit}{' alone' * alone} by {worker}",
                    lambda world, limit=limit, alone=alone: world.claim(worker, limit, alone),
                )
            return
        if self.crashes:
            yield f"crash of {worker}", lambda world: world.crash(worker)
        if held.heard:
            yield f"settle by {worker}", lambda world: world.settle(worker, held)
            return
        for outcomes in product(*(OUTCOMES[name] for name in held.ids)):
            if sum(each in UNKNOWN for each in outcomes) <= self.unknowns:
                yield (
                    f"publish by {worker}: {outcomes}",
                    lambda world, heard=outcomes: world.publish(worker, held, heard),
                )

    # ── the steps ───────────────────────────────────────────────────────────────────────────────

    def tick(self) -> None:
        self.now += 1

    def reclaim(self) -> None:
        self.faults += self.store.reclaim(counted=True) > 0

    def claim(self, worker: int, limit: int, alone: bool) -> None:
        ids = self.store.claim(limit, LEASE, alone=alone)
        if not ids:
            return
        self.claims += 1
        token = f"{worker}-{self.claims}".encode()
        self.store.hold(ids, token)
        self.put(worker, Held(token, tuple(ids)))

    def crash(self, worker: int) -> None:
        self.crashes, self.faults = self.crashes - 1, self.faults + 1
        self.put(worker, None)

    def publish(self, worker: int, held: Held, heard: tuple[str, ...]) -> None:
        if not self.is_within_lease(held):  # given back; a late release changes nothing
            self.store.settle("release", held.token, list(held.ids), 0)
            self.put(worker, None)
            return
        for name, outcome in zip(held.ids, heard, strict=True):
            unknown = outcome in UNKNOWN
            self.unknowns, self.faults = self.unknowns - unknown, self.faults + unknown
            if outcome in (CONFIRMED, ARRIVED):
                self.arrive(name)
            elif outcome == LATER:
                self.in_the_air = tuple(sorted((*self.in_the_air, name)))
        self.put(worker, replace(held, heard=heard))

    def is_within_lease(self, held: Held) -> bool:
        """Workers keep their deadline by their own clock, here a perfect one."""
        mine = [self.lives[n] for n in held.ids if n in self.lives]
        return any(life.token == held.token and self.now < life.score for life in mine)

    def settle(self, worker: int, held: Held) -> None:
        for name, outcome in zip(held.ids, held.heard, strict=True):
            life = self.lives.get(name)
            how = {CONFIRMED: "ack", FAILED: "failed"}.get(outcome, "unsure")
            if how == "failed" and life is not None and life.failures + 1 >= MAX_FAILURES:
                how = "bury"
            self.store.settle(how, held.token, [name], 1)
            self.check_repeated(how, held.token, name)
        self.put(worker, None)

    def check_repeated(self, how: str, token: bytes, name: str) -> None:
        """A settle whose reply was lost is called again: it must change nothing."""
        before = self.key()
        assert self.store.settle(how, token, [name], 1) == [name]
        assert self.key() == before, f"{how} of {name} settled twice"

    def cancel(self, name: str) -> None:
        self.answers[name] = self.store.cancel(name)

    def reschedule(self, name: str) -> None:
        self.is_moved = True
        if self.store.reschedule(name, 1) == "rescheduled":
            self.promised[name] = self.now + 1

    def land(self, name: str) -> None:
        air = list(self.in_the_air)
        air.remove(name)
        self.in_the_air = tuple(air)
        self.arrive(name)

    def arrive(self, name: str) -> None:
        assert self.now >= self.promised[name], f"{name} is early"
        assert self.answers.get(name) != "cancelled", f"{name} arrived after its cancel"
        self.arrived[name] += 1
        assert self.arrived[name] == 1 or self.faults, f"{name} arrived twice without a fault"

    # ── what must hold ──────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Nothing is lost: what has left the store arrived, or somebody cancelled it."""
        for name in IDS:
            is_excused = self.answers.get(name) in ("cancelled", "in_flight")
            assert name in self.lives or self.arrived[name] or is_excused, f"{name} is lost"

    def check_goes_on(self) -> None:
        """From here healthy workers bring everything to its end: nothing is stuck."""
        world = self.copy()
        world.workers = (None, None)
        for _ in range(8):
            world.now += LEASE
            world.reclaim()
            world.store.promote(1000)
            for alone in (True, True, False):
                world.claim(0, 2, alone)
                if held := world.workers[0]:
                    world.faults += 1  # what was under way at first may come twice
                    world.publish(0, held, (CONFIRMED,) * len(held.ids))
                    world.settle(0, world.workers[0] or held)
        stuck = [name for name, life in world.lives.items() if life.state != "dead"]
        assert not stuck, f"{stuck} stay for ever"
        world.check()


def first_world() -> World:
    """Two envelopes, one due at once."""
    world = World(0, {}, {"a": 0, "b": 1})
    for name, delay in world.promised.items():
        world.store.schedule(name, (delay, None, 0), False)
    return world


def search(first: World) -> int:
    """Visit every state that can be reached; returns how many, raises with the way to a bad one."""
    came_from: dict[Any, tuple[Any, str]] = {first.key(): (None, "the beginning")}
    queue = deque([first])
    while queue:
        world = queue.popleft()
        try:
            world.check()
            world.check_goes_on()
        except AssertionError as error:
            raise AssertionError(f"{error}: {way_to(world.key(), came_from)}") from None
        queue.extend(discovered(world, came_from))
    return len(came_from)


def discovered(world: World, came_from: dict[Any, tuple[Any, str]]) -> Iterator[World]:
    here = world.key()
    for name, act in world.acts():
        after = world.copy()
        try:
            act(after)
        except AssertionError as error:
            raise AssertionError(f"{error}: {way_to(here, came_from)}, {name}") from None
        key = after.key()
        if key not in came_from:
            came_from[key] = (here, name)
            yield after


def way_to(key: Any, came_from: dict[Any, tuple[Any, str]]) -> str:
    """Return the shortest way to a state, step by step."""
    steps = []
    while key is not None:
        key, name = came_from[key]
        steps.append(name)
    return ", ".join(reversed(steps))
