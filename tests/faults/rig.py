"""One run of a scenario: its own route, target, workers and histories, and the verdict on them."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from duebridge.errors import StoreError
from tests.faults.judgement import Look, RunAccount, judge, tell
from tests.faults.scenario import Bound, Config, Result, Scenario
from tests.faults.servers.brokers import BrokerSide, KafkaSide, RabbitSide
from tests.faults.servers.stack import NAMES, Stack
from tests.faults.servers.storage import Storage
from tests.faults.traffic import ROUTE, NotedProducer, Traffic
from tests.support.model.histories import Historian, Phase, Subject, now_ms, read_histories

LEASE_S = 3.0
WITHIN_S = 60.0
PAUSE_S = 0.01
MANY, MANY_WITHIN_S = 100, 2.0  # envelopes in flight that a fault waits for

WORKER = {"in_flight": 500, "batch": 100, "publish_deadline": "1300ms", "drain": "10s"}
DEFAULTS = {"lease": "3s"}
RETRY = {"max_attempts": 5, "initial": "100ms", "max": "1s"}
LOOK_EVERY_S, COUNT_EVERY_S = 0.05, 1.0


@contextmanager
def meanwhile(look: Callable[[], object], every_s: float) -> Iterator[None]:
    """Look again and again in a thread until the block is done."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(every_s):
            look()

    thread = threading.Thread(target=run, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def hold(process: "subprocess.Popen[bytes]") -> None:
    """Let a process do nothing (SIGSTOP), until SIGCONT; returns once it stands still."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


class Fault:
    """One fault that is being injected; effective once it struck and its effect was seen.

    `in_flight` is the most that workers held at once until it was over; it may have each of them
    published `strikes` times more.
    """

    def __init__(self, name: str, in_flight: int, logged_bytes: Mapping[Path, int]) -> None:
        self.name = name
        self.logged_bytes = logged_bytes  # of each log, when it struck
        self.in_flight = in_flight
        self.effect, self.strikes = "", 1

    def note(self, in_flight: int) -> None:
        self.in_flight = max(self.in_flight, in_flight)

    def silences(self, workers: int) -> None:
        """Let the publish deadline pass while the broker is silent.

        It passes at one worker first; the next one publishes what that gave back, on a connection
        of its own, and the broker that speaks again takes every copy.
        """
        self.strikes = max(1, workers)

    @property
    def is_effective(self) -> bool:
        return self.in_flight > 0 and self.effect != ""


class Rig:
    """What a fault may get its hands on."""

    def __init__(
        self, stack: Stack, scenario: Scenario, broker: str, home: Path, seed: str, count: int
    ) -> None:
        self.stack = stack
        self.scenario = scenario
        self.home = home
        self.count = count
        self._began = time.monotonic()
        self.seed = seed
        self.namespace = f"faults-{seed}"
        self._consumer = Historian(home, "consumer")
        self.sides: list[BrokerSide] = []
        self.side: Any = self.open_side(broker, linked="broker" in scenario.through)
        self.targets: dict[str, dict[str, str]] = {}  # more of them, by the scenario's own words
        config = self._config()
        scenario.arrange(self, config)
        self.config_path = self._write_config(config, "store")
        self.workers: list[subprocess.Popen[bytes]] = []
        self.faults: list[Fault] = []
        self.bounds: list[Bound] = []
        self.emptied_s = self.stopped_in_s = 0.0
        self.in_hand: Callable[[], int] | None = None  # what a fault strikes, if not leases
        self._nemesis = Historian(home, "faults")
        self.store = Storage(stack.store_url(), self.config_path)
        path = self._write_config(config, "producer")
        self.producer = NotedProducer(path, home, "producer")
        traffic = NotedProducer(path, home, "traffic")
        self.traffic = Traffic(traffic, seed, count, scenario.over_s, self.side.fields)

    def open_side(self, kind: str, broker: str = "side", *, linked: bool = False) -> BrokerSide:
        """Return a broker by a name of its own in the configuration; it is read and closed too."""
        given = (self.stack, self._consumer, f"{self.namespace}-{broker}", broker)
        if kind == "kafka":
            in_cluster = self.scenario.in_cluster
            side: Any = KafkaSide(*given, linked=linked, in_cluster=in_cluster)
        else:
            side = RabbitSide(*given, linked=linked)
        self.sides.append(side)
        return side

    def _config(self) -> Config:
        route = {"target": self.side.target, "dead_letter": self.side.dead_letter}
        return {
            "version": 1,
            "store": {"namespace": self.namespace},
            "brokers": {"side": self.side.settings},
            "worker": {**WORKER},
            "defaults": {**DEFAULTS, "retry": {**RETRY}},
            "routes": {ROUTE: route},
        }

    def _write_config(self, config: Config, party: str) -> Path:
        """Write the configuration of a party, whose way to the store may be its link."""
        path = self.home / f"{party}.yaml"
        url = self.stack.store_url(party if party in self.scenario.through else "")
        path.write_text(json.dumps({**config, "store": {**config["store"], "url": url}}))
        return path

    # ── what a fault uses ───────────────────────────────────────────────────────────────────────

    @contextmanager
    def fault(self, name: str) -> Iterator[Fault]:
        """Wait until messages are in flight; the block breaks something and sees its effect."""
        in_flight = self._most_in_flight()
        fault = Fault(name, in_flight, {log: log.stat().st_size for log in self._logs()})
        self._nemesis.note(Subject.FAULT, Phase.INVOKE, name, answer=f"{fault.in_flight} in flight")
        with meanwhile(lambda: fault.note(self.in_flight()), LOOK_EVERY_S):
            yield fault
        phase = Phase.OK if fault.is_effective else Phase.INFO
        self._nemesis.note(Subject.FAULT, phase, name, answer=fault.effect)
        self.faults.append(fault)

    def _most_in_flight(self) -> int:
        """Wait for a burst, and make do with less where none comes; 0 if nothing moves at all."""
        give_up_at = time.monotonic() + MANY_WITHIN_S
        count = self.in_flight()
        while count < MANY and (time.monotonic() < give_up_at or not count):
            if time.monotonic() > give_up_at + WITHIN_S:
                break
            time.sleep(PAUSE_S)
            count = self.in_flight()
        return count

    def see(self, is_so: Callable[[], bool], within_s: float = WITHIN_S) -> bool:
        """Return whether it came to be so in time."""
        give_up_at = time.monotonic() + within_s
        while not is_so():
            if time.monotonic() > give_up_at:
                return False
            time.sleep(PAUSE_S)
        return True

    def sleep_until(self, at: float) -> None:
        """Let things be as they are until an instant, monotonic."""
        time.sleep(max(0.0, at - time.monotonic()))

    def see_logged(self, fault: Fault, event: str) -> None:
        """Take a new line of a worker's log for the fault's effect."""
        self.take(fault, f"logged {event}", lambda: self.logged(event, fault.logged_bytes) > 0)

    def take(self, fault: Fault, effect: str, is_so: Callable[[], bool]) -> None:
        """Take this for the fault's effect, if it comes to be so in time."""
        if self.see(is_so):
            fault.effect = effect

    def start_worker(self, *program: str | Path, **environment: str) -> "subprocess.Popen[bytes]":
        """Start `duebridge run`, or another version's, as a program that takes its arguments."""
        program = program or (Path(sys.executable).with_name("duebridge"),)
        env = os.environ | environment
        with (self.home / f"worker-{len(self.workers)}.log").open("wb") as log:
            command = [*program, "--config", self.config_path, "run"]
            worker = subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=self.home)
        self.workers.append(worker)
        return worker

    def start_workers(self, count: int, *program: str) -> int:
        """Start so many, and wait until each has said so; return when that was, in ms."""
        for _ in range(count):
            self.start_worker(*program)
        self.see(lambda: self.logged('"started"') >= len(self.workers))
        return now_ms()

    def seconds_to_leave(self, worker: "subprocess.Popen[bytes]") -> float:
        """Return how long a worker takes to end by SIGTERM; one that does not is killed."""
        began = time.monotonic()
        worker.terminate()
        try:
            worker.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            worker.kill()
        return round(time.monotonic() - began, 1)

    def in_flight(self) -> int:
        """Envelopes that a worker holds; 0 also while the store does not answer."""
        if self.in_hand is not None:
            return self.in_hand()
        try:
            return self.store.poll()["unack"]
        except StoreError:
            return 0

    def _logs(self) -> list[Path]:
        return list(self.home.glob("worker-*.log"))

    def logged(self, event: str, since_bytes: Mapping[Path, int] | None = None) -> int:
        """How often the workers logged it, after so many bytes of each log."""
        begin, word = since_bytes or {}, event.encode()
        return sum(log.read_bytes()[begin.get(log, 0) :].count(word) for log in self._logs())

    # ── the run ─────────────────────────────────────────────────────────────────────────────────

    def run(self) -> Result:
        """Break what the scenario says under traffic; returns what came of it."""
        self.start_workers(self.scenario.workers)
        has_traffic, counts = self.scenario.over_s > 0, not self.scenario.may_count
        with meanwhile(self.store.note_failures, COUNT_EVERY_S) if counts else nullcontext():
            if has_traffic:
                self.traffic.start()
            look = self.scenario.inject(self)
            if has_traffic:
                self.traffic.finish()
            ended_at = time.monotonic()
            self.see(self.is_empty, self.scenario.drains_within_s)
            self.emptied_s = time.monotonic() - ended_at
        self.stop_workers()
        for side in self.sides:
            side.collect()
        self.store.dump(self.home)
        return self._result(look)

    def is_empty(self) -> bool:
        """Whether nothing waits, and no more are dead than may stay."""
        try:
            found = self.store.poll()
        except StoreError:
            return False
        return found.total() == found["dead"] <= self.scenario.keeps_dead

    def stop_workers(self) -> None:
        began = time.monotonic()
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.terminate()
        for worker in self.workers:
            worker.wait(timeout=30)
        self.stopped_in_s = time.monotonic() - began

    def _result(self, look: Look | None) -> Result:
        events = read_histories(self.home)
        seen = RunAccount(events, self.store.journal())
        left = self.store.leftovers()
        may_repeat = sum(each.in_flight * each.strikes for each in self.faults)
        violations = judge(seen, self.scenario, may_repeat)
        violations |= {} if self.scenario.keeps_dead else left.violations()
        if self.store.failures:
            violations["counted"] = sorted(self.store.failures)
        if violations:
            tell(self.home, events, violations)
        verdict = seen.verdict
        return Result(
            scenario=self.scenario.name,
            broker=self.side.service,
            seed=self.seed,
            violations=violations,
            planned=self.scenario.faults,
            effective=sum(fault.is_effective for fault in self.faults),
            seen=[f"{each.name}: {each.effect or 'nothing seen'}" for each in self.faults],
            accepted=verdict.accepted,
            delivered=verdict.delivered,
            dead=verdict.dead,
            duplicates=verdict.duplicate_copies + seen.letter_copies,
            may_repeat=may_repeat,
            recovered=len(verdict.recovered),
            cancelled=verdict.cancelled,
            seconds=round(time.monotonic() - self._began, 1),
            emptied_s=round(self.emptied_s, 1),
            bounds=[*self.bounds, *(look(seen) if look else ())],
        )

    def close(self) -> None:
        self.traffic.stop()
        for worker in self.workers:
            worker.kill()
            worker.wait()
        for link in self.stack.links.values():
            link.heal()
        for each in (
            self.producer,
            self.traffic.producer,
            *self.sides,
            self._consumer,
            self._nemesis,
        ):
            each.close()
        self.store.close()


def run_scenario(
    stack: Stack, scenario: Scenario, broker: str, home: Path, seed: str, count: int
) -> Result:
    """Return what came of one run; its histories and logs stay in `home`."""
    stack.up(*NAMES)
    rig = Rig(stack, scenario, broker, home, seed, count)
    try:
        return rig.run()
    finally:
        rig.close()
