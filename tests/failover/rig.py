"""One run: a set of servers of its own, traffic, a fault, and what came of it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import redis

from duebridge.admin.listing import Listing
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.server.connection import Connection
from tests.failover.client import ROUTE
from tests.failover.judgement import LOSSES, RESUMES_WITHIN_S, Counts, count
from tests.failover.nodes import LinkedNode
from tests.failover.power import PoweredNode
from tests.failover.worker import BROKER
from tests.support.model.histories import Historian, Phase, Subject, now_ms, read_histories
from tests.support.redis.redis_sets import ClusterOfSix, SentinelSet
from tests.support.running_clock import running_clock
from tests.support.servers import wait_until

WORKERS = 2
STEADY_S = 2.0  # of traffic before a fault and after: cancels are under way too
DRAINS_WITHIN_S = 90.0
DURABILITIES = ("async", "fsync", "replicated")
ALL = frozenset(DURABILITIES)
FSYNC = ("--appendonly", "yes", "--appendfsync", "always")

Topology: TypeAlias = "Sentinels | Cluster | Alone"


class Sentinels:
    """A Sentinel set as a rig sees it: one master has all shards."""

    shards, replicas = 2, 2

    def __init__(self, running: SentinelSet) -> None:
        self.set, self.url = running, running.url

    def owner(self, shard: Shard) -> Any:
        return self.set.master()

    def await_owner_after(self, old: Any, shard: Shard) -> Any:
        return self.set.await_master_after(old)


class Cluster:
    """A Cluster as a rig sees it: shards are spread over the masters."""

    shards, replicas = 6, 1

    def __init__(self, running: ClusterOfSix, make: Callable[..., LinkedNode]) -> None:
        self.set, self.url, self.make = running, running.url, make

    def owner(self, shard: Shard) -> Any:
        return self.set.owner_of(shard.tag)

    def await_owner_after(self, old: Any, shard: Shard) -> Any:
        return self.set.await_owner_after(old, shard.tag)


class Alone:
    """One server without a replica, whose machine may lose its power."""

    shards, replicas = 2, 0

    def __init__(self, running: PoweredNode) -> None:
        self.node, self.url = running, f"redis://127.0.0.1:{running.port}/0"

    def owner(self, shard: Shard) -> Any:
        return self.node

    def await_owner_after(self, old: Any, shard: Shard) -> Any:
        return old


class Scenario(NamedTuple):
    """What is broken, and by what; `effect` is what it says of itself once it struck.

    The durabilities in `keeps_all` lose nothing; of those in `tried` losses are counted.
    """

    name: str
    what: str
    inject: "Callable[[Rig], str]"
    open: "Callable[[Path, tuple[str, ...]], Any]"
    keeps_all: frozenset[str] = frozenset({"replicated"})
    tried: tuple[str, ...] = DURABILITIES


class Result(msgspec.Struct, frozen=True):
    """One run. `resumed_s`: from the new owner's first answer to its first claims, each time."""

    scenario: str
    durability: str
    seed: str
    effect: str
    resumed_s: list[float]
    counts: Counts
    violations: dict[str, list[str]]
    seconds: float

    @property
    def outcome(self) -> str:
        """`held`, `BROKEN`, or `INVALID`: the fault was not seen to strike."""
        if self.violations:
            return "BROKEN"
        return "held" if self.effect else "INVALID"

    @classmethod
    def failed(cls, scenario: str, durability: str, seed: str, error: Exception) -> "Result":
        """Return that of a run that came to no end."""
        violations = {"failed": [f"{type(error).__name__}: {error}"]}
        return cls(scenario, durability, seed, "", [], count([], 0), violations, 0.0)

    def __str__(self) -> str:
        counts = self.counts
        found = " ".join(f"{len(getattr(counts, kind))} {kind}" for kind in LOSSES)
        return (
            f"{self.scenario:<14}{self.durability:<11}{self.outcome:<8} {counts.accepted:>6}"
            f" accepted {found} {counts.duplicates} twice {counts.indeterminate} indeterminate,"
            f" claims after {self.resumed_s} s, {self.seconds} s, {self.effect}"
            f" {' '.join(f'{kind}: {what[0]}' for kind, what in self.violations.items())}"
        )


class Rig:
    """What a fault may get its hands on."""

    def __init__(self, place: Topology, durability: str, home: Path, seed: str) -> None:
        self.place, self.home, self.seed = place, home, seed
        self.is_replicated = durability == "replicated"
        self.shards = [Shard(f"ha-{seed}", ROUTE, each) for each in range(place.shards)]
        self.config = home / "duebridge.yaml"
        self.config.write_text(json.dumps(_config(place, durability, self.shards[0].namespace)))
        self.resumed_s: list[float] = []
        self.late: list[str] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start workers and traffic; return once all of it goes on."""
        for number in range(WORKERS):
            name = f"worker{number}"
            self._start(name, str(self.home), name, "--config", str(self.config), "run")
        self.client = self._start("client", str(self.config), str(self.home), self.seed)
        wait_until(self._is_going, f"claims of every shard; see {self.home}")
        time.sleep(STEADY_S)  # traffic, not a wait: there is nothing to see

    def _is_going(self) -> bool:
        assert all(each.poll() is None for each in self._processes), f"one ended: {self.home}"
        return all(self.claims(self.place.owner(each), each) for each in self.shards)

    def _start(self, name: str, *words: str) -> "subprocess.Popen[bytes]":
        module = f"tests.failover.{name.rstrip('0123456789')}"
        with (self.home / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    # ── what a fault uses ───────────────────────────────────────────────────────────────────────

    def owner(self) -> Any:
        """Return the node that is to fail: the owner of the first shard."""
        return self.place.owner(self.shards[0])

    def shards_of(self, node: Any) -> list[Shard]:
        return [each for each in self.shards if self.place.owner(each) is node]

    def see_promotion(self, old: Any, heal: Callable[[Any], object]) -> Any:
        """Wait for another owner and its claims; heal what is broken in between; return it.

        `replicated` claims only once every replica is there again, so there healing comes first.
        """
        new = self.place.await_owner_after(old, self.shards[0])
        if self.is_replicated:
            heal(new)
            self.await_replicas()
            self.see_claims(new)
        else:
            self.see_claims(new)
            heal(new)
            self.await_replicas()
        return new

    def await_replicas(self) -> None:
        """Wait until every replica follows the owner, whichever it is by then.

        Sentinels may promote once more: the one that led a failover has to connect again.
        """

        def are_there() -> bool:
            with suppress(AssertionError, redis.RedisError):
                return bool(self.owner().online() == self.place.replicas)
            return False

        wait_until(are_there, "the replicas", 60)

    def see_claims(self, node: Any) -> None:
        """Note how long it takes until every shard of a node is claimed from again."""
        began = time.monotonic()
        with running_clock() as clock:
            shards = self.shards_of(node)
            before = {each: self.claims(node, each) for each in shards}
            for each in shards:
                wait_until(lambda each=each: self.claims(node, each) != before[each], f"{each}")
        self.resumed_s.append(round(time.monotonic() - began, 2))
        if clock.seconds() > RESUMES_WITHIN_S:
            self.late.append(f"{self.resumed_s[-1]} s, {clock.seconds():.2f} s of them ran")

    def claims(self, node: Any, shard: Shard) -> int:
        """Return how many claims a shard has had, by the word of a node; 0 without a word."""
        try:
            return int(node.ask("HGET", shard.key("meta"), "claims") or 0)
        except redis.RedisError:
            return 0

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    def finish(self) -> None:
        """End the traffic, wait until nothing due waits, end the workers, write the store down."""
        self.client.communicate(timeout=120)
        assert self.client.returncode == 0, f"the client failed: {self.home}/client.log"
        give_up_at = time.monotonic() + DRAINS_WITHIN_S
        while not self._is_drained() and time.monotonic() < give_up_at:
            time.sleep(0.1)
        self.ended_at_ms = now_ms()
        for each in self._processes:
            each.terminate()
        for each in self._processes:
            each.wait(60)
        self._dump()

    def _is_drained(self) -> bool:
        for store in self._stores():
            poll = store.next()
            soon = 0 <= poll.first_pending_ms < poll.now_ms + 60_000
            if soon or poll.ready or poll.suspect or poll.unack or poll.retry:
                return False
        return True

    def _dump(self) -> None:
        history = Historian(self.home, "store")
        for found in Listing(ROUTE, list(self._stores())).walk():
            record = found.entry.record
            due_at_ms = record.due_at_ms if record else 0
            entry = found.entry
            history.note(Subject.STORE, Phase.OK, entry.id, due_at_ms=due_at_ms, answer=entry.state)
        history.close()

    def _stores(self) -> Iterator[DelayStore]:
        """Yield each shard as its owner has it, by scripts that only read."""
        for shard in self.shards:
            client = redis.Redis(port=self.place.owner(shard).port)
            self._open.callback(client.close)
            yield DelayStore(Connection(client), shard)

    def __enter__(self) -> "Rig":
        self._open = ExitStack()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._processes:
            each.kill()
            each.communicate()
        self._open.close()


def run_scenario(scenario: Scenario, durability: str, home: Path, seed: str) -> Result:
    """Return what came of one run; its histories and logs stay in `home`."""
    began = time.monotonic()
    options = FSYNC if durability == "fsync" else ()
    with scenario.open(home, options) as place, Rig(place, durability, home, seed) as rig:
        rig.start()
        effect = scenario.inject(rig)
        time.sleep(STEADY_S)
        rig.finish()
    counts = count(read_histories(home), rig.ended_at_ms)
    violations = counts.violations(keeps_all=durability in scenario.keeps_all)
    if rig.late:
        violations["late"] = rig.late
    seconds = round(time.monotonic() - began, 1)
    return Result(
        scenario.name, durability, seed, effect, rig.resumed_s, counts, violations, seconds
    )


def _config(place: Topology, durability: str, namespace: str) -> dict[str, Any]:
    wanted: Any = durability
    if durability == "replicated":
        wanted = {"replicated": {"replicas": place.replicas, "timeout": "1s"}}
    store = {"url": place.url, "namespace": namespace, "allow_unfit": ["persistence"]}
    if durability != "async":
        store["durability"] = wanted
    return {
        "version": 1,
        "store": store,
        "brokers": {"memory": BROKER},
        "worker": {"publish_deadline": "1300ms", "drain": "10s"},
        "defaults": {"lease": "3s"},
        "routes": {ROUTE: {"target": {"broker": "memory", "topic": "t"}, "shards": place.shards}},
    }
