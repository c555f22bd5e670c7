"""One run of a scenario: its own route, target, workers and histories, and the verdict on them."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from duebridge.audit import Op, Phase
from duebridge.config.load import load_config
from duebridge.errors import StoreError
from duebridge.producer import Producer
from duebridge.store.connection import open_connection
from duebridge.store.poll import Stats
from duebridge.store.routes import RouteStore
from tests.faults.brokers import BrokerSide, KafkaSide, RabbitSide
from tests.faults.judgement import Historian, dump, judge, leftovers, stored_bytes
from tests.faults.scenario import Bound, Result, Scenario
from tests.faults.stack import NAMES, Stack
from tests.faults.traffic import ROUTE, Traffic

LEASE_S = 3.0
WITHIN_S = 60.0
PAUSE_S = 0.01
MANY, MANY_WITHIN_S = 100, 2.0  # envelopes in flight that a fault waits for

CONFIG = """
version: 1
store: {{url: "{store}", namespace: {namespace}}}
brokers:
  side: {broker}
worker: {{in_flight: {window}, batch: 100, publish_deadline: 1300ms, drain: 10s}}
defaults: {{lease: 3s, retry: {{max_attempts: 5, initial: 100ms, max: 1s}}}}
routes:
  faults: {{target: {target}, dead_letter: {dead_letter}}}
"""


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


class Fault:
    """One fault that is being injected; effective once it struck and its effect was seen."""

    def __init__(self, name: str, in_flight: int, logged_bytes: Mapping[Path, int]) -> None:
        self.name = name
        self.logged_bytes = logged_bytes  # of each log, when it struck
        self.in_flight = in_flight
        self.effect = ""

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
        self._began = time.monotonic()
        self._seed = seed
        self._namespace = f"faults-{seed}"
        self.side = self._open_side(broker)
        self.config_path = self._write_config("store")
        producer_path = self._write_config("producer")
        self.workers: list[subprocess.Popen[bytes]] = []
        self.faults: list[Fault] = []
        self.bounds: list[Bound] = []
        self.emptied_s = self.stopped_in_s = 0.0
        self._nemesis = Historian(home, "faults")
        self._producers = Historian(home, "producer")
        self.store = open_connection(stack.store_url())
        route = load_config(self.config_path).routes[ROUTE]
        self._route = RouteStore.open(self.store, self._namespace, route)
        self.shard = self._route.shards[0].shard
        self._before_bytes = stored_bytes(self.store)
        self._producer = Producer.from_config(producer_path)
        self.traffic = Traffic(
            self._producer, self._producers, seed, count, scenario.over_s, self.side.fields
        )

    def _open_side(self, broker: str) -> BrokerSide:
        linked, given = "broker" in self.scenario.through, (self.stack, self.home, self._namespace)
        if broker == "kafka":
            return KafkaSide(*given, linked=linked, in_cluster=self.scenario.in_cluster)
        return RabbitSide(*given, linked=linked)

    def _write_config(self, party: str) -> Path:
        """Write the configuration of a party, whose way to the store may be its link."""
        path = self.home / f"{party}.yaml"
        text = (self.scenario.config or CONFIG).format(
            store=self.stack.store_url(party if party in self.scenario.through else ""),
            namespace=self._namespace,
            broker=json.dumps(self.side.settings),
            window=self.scenario.window,
            target=json.dumps(self.side.target),
            dead_letter=json.dumps(self.side.dead_letter),
        )
        path.write_text(text)
        return path

    # ── what a fault uses ───────────────────────────────────────────────────────────────────────

    @contextmanager
    def fault(self, name: str) -> Iterator[Fault]:
        """Wait until messages are in flight; the block breaks something and sees its effect."""
        in_flight = self._most_in_flight()
        fault = Fault(name, in_flight, {log: log.stat().st_size for log in self._logs()})
        self._nemesis.note(Op.FAULT, Phase.INVOKE, name, answer=f"{fault.in_flight} in flight")
        yield fault
        phase = Phase.OK if fault.is_effective else Phase.INFO
        self._nemesis.note(Op.FAULT, phase, name, answer=fault.effect)
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

    def see_logged(self, fault: Fault, event: str) -> None:
        """Take a new line of a worker's log for the fault's effect."""
        self.take(fault, f"logged {event}", lambda: self.logged(event, fault.logged_bytes) > 0)

    def take(self, fault: Fault, effect: str, is_so: Callable[[], bool]) -> None:
        """Take this for the fault's effect, if it comes to be so in time."""
        if self.see(is_so):
            fault.effect = effect

    def start_worker(self, **environment: str) -> "subprocess.Popen[bytes]":
        program = Path(sys.executable).with_name("duebridge")
        command: list[str | Path] = [program, "--config", self.config_path, "run"]
        env = os.environ | environment
        with (self.home / f"worker-{len(self.workers)}.log").open("wb") as log:
            worker = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        self.workers.append(worker)
        return worker

    def stats(self) -> Stats:
        return self._route.shards[0].stats()

    def in_flight(self) -> int:
        """Envelopes that a worker holds; 0 also while the store does not answer."""
        try:
            return self.stats().poll.unack
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
        for _ in range(self.scenario.workers):
            self.start_worker()
        self.see(lambda: self.logged('"started"') >= self.scenario.workers)
        self.traffic.start()
        self.scenario.inject(self)
        self.traffic.finish()
        self.traffic.join()
        if self.traffic.error is not None:
            raise self.traffic.error
        ended_at = time.monotonic()
        self.see(self._is_empty, self.scenario.drains_within_s)
        self.emptied_s = time.monotonic() - ended_at
        self.stop_workers()
        self.side.collect()
        dump(self.home, self._route)
        return self._result()

    def _is_empty(self) -> bool:
        try:
            poll = self.stats().poll
        except StoreError:
            return False
        waiting = poll.pending + poll.ready + poll.suspect + poll.unack + poll.retry
        return waiting + poll.dead == 0

    def stop_workers(self) -> None:
        began = time.monotonic()
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.terminate()
        for worker in self.workers:
            worker.wait(timeout=30)
        self.stopped_in_s = time.monotonic() - began

    def _result(self) -> Result:
        left = leftovers(self.store, self.shard, self._before_bytes)
        verdict, violations = judge(self.home, self.scenario, len(self.faults), left)
        return Result(
            scenario=self.scenario.name,
            broker=self.side.service,
            seed=self._seed,
            violations=violations,
            planned=self.scenario.faults,
            effective=sum(fault.is_effective for fault in self.faults),
            seen=[f"{each.name}: {each.effect or 'nothing seen'}" for each in self.faults],
            accepted=verdict.accepted,
            delivered=verdict.delivered,
            dead=verdict.dead,
            duplicates=verdict.duplicate_copies,
            recovered=len(verdict.recovered),
            cancelled=verdict.cancelled,
            seconds=round(time.monotonic() - self._began, 1),
            emptied_s=round(self.emptied_s, 1),
            bounds=self.bounds,
        )

    def close(self) -> None:
        self.traffic.stop()
        if self.traffic.is_alive():
            self.traffic.join()
        for worker in self.workers:
            worker.kill()
            worker.wait()
        for link in self.stack.links.values():
            link.heal()
        self._producer.close()
        self.side.close()
        for key in self.store.client.scan_iter(match=f"{{{self._namespace}*", count=1000):
            self.store.client.unlink(key)
        self.store.close()
        self._nemesis.close()
        self._producers.close()


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
