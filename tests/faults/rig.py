"""A store, a broker and worker processes of our own, which may be killed, frozen and restarted.

Every fault test accounts for every accepted id by reading the broker back: `Rig.verdict`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bridge.audit import Accepted, History, Verdict, audit, fingerprint
from bridge.config_file import load_config
from bridge.envelope import Envelope
from bridge.producer import Producer
from bridge.store.connection import open_connection
from bridge.store.replies import Stats
from bridge.store.route_store import RouteStore
from tests.faults.brokers import BrokerSide

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120.0
PAUSE_S = 0.01

CONFIG = """
version: 1
store: {{url: "{redis}", namespace: {namespace}}}
brokers:
  side: {broker}
worker: {{in_flight: 1000, batch: 100, publish_deadline: 2s, drain: 10s}}
defaults: {{lease: 4s, retry: {{max_attempts: 5, initial: 100ms, max: 1s}}}}
routes:
  faults: {{target: {target}, dead_letter: {dead_letter}}}
"""


class Services:
    """Redis, Kafka and RabbitMQ of this test run alone, as deploy/local starts them."""

    def __init__(self, home: Path) -> None:
        self._root = home
        shutil.copytree(ROOT / "deploy" / "local", home / "deploy" / "local")

    def up(self, *names: str) -> None:
        self._call("up", "--only", ",".join(names))

    def down(self) -> None:
        self._call("down")

    def _call(self, *arguments: str) -> None:
        program = self._root / "deploy" / "local" / "services.py"
        subprocess.run([sys.executable, str(program), *arguments], check=True, capture_output=True)

    def state(self, name: str) -> dict[str, Any]:
        found = json.loads((self._root / ".services" / "services.json").read_text())[name]
        assert isinstance(found, dict)
        return found

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.state(name)["pid"], number)

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        self.signal(name, signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(name, signal.SIGCONT)


class Rig:
    """One fault scenario: its own route, target and workers."""

    def __init__(self, services: Services, broker: BrokerSide, home: Path, namespace: str) -> None:
        self.services = services
        self.broker = broker
        self._home = home
        self._workers: list[subprocess.Popen[bytes]] = []
        self._accepted: dict[str, Accepted] = {}
        self.config_path = home / "duebridge.yaml"
        self.config_path.write_text(
            CONFIG.format(
                redis=services.state("redis")["url"],
                namespace=namespace,
                broker=json.dumps(broker.settings),
                target=json.dumps(broker.target),
                dead_letter=json.dumps(broker.dead_letter),
            )
        )
        config = load_config(self.config_path)
        self.connection = open_connection(services.state("redis")["url"])
        self.producer = Producer(config, self.connection)
        self._store = RouteStore(self.connection, namespace, config.routes["faults"])

    def start_worker(self) -> "subprocess.Popen[bytes]":
        program = Path(sys.executable).with_name("duebridge")
        with (self._home / f"worker-{len(self._workers)}.log").open("wb") as log:
            worker = subprocess.Popen(
                [str(program), "--config", str(self.config_path), "run"], stdout=log, stderr=log
            )
        self._workers.append(worker)
        return worker

    def schedule(self, count: int, over_s: float) -> None:
        """Schedule envelopes whose due instants are spread evenly from half a second on."""
        step_ms = over_s * 1000 / count
        envelopes = [
            Envelope.new(
                b"%d" % place, delay=f"{500 + int(place * step_ms)}ms", headers={"n": str(place)}
            )
            for place in range(count)
        ]
        for envelope, receipt in zip(
            envelopes, self.producer.schedule_many("faults", envelopes), strict=True
        ):
            assert receipt.status == "accepted"
            print_of = fingerprint(envelope.body, envelope.key, envelope.headers)
            self._accepted[receipt.id] = Accepted(receipt.id, receipt.due_at_ms, print_of)

    def stats(self) -> Stats:
        return self._store.shards[0].stats()

    def wait(self, is_so: Callable[[], bool], what: str, within_s: float = DEADLINE_S) -> None:
        give_up_at = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < give_up_at, (
                f"{what}: not within {within_s:.0f} s; {self.stats()}"
            )
            pause()

    def wait_in_flight(self) -> None:
        """Wait until a fault would strike messages that are on their way."""
        self.wait(lambda: self.stats().poll.unack > 0, "messages in flight")

    def wait_empty(self) -> None:
        def is_empty() -> bool:
            poll = self.stats().poll
            return poll.pending + poll.ready + poll.suspect + poll.unack + poll.retry == 0

        self.wait(is_empty, "an empty store")

    def logged(self, event: str) -> int:
        logs = self._home.glob("worker-*.log")
        return sum(log.read_text(errors="replace").count(event) for log in logs)

    def stop_workers(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.terminate()
        for worker in self._workers:
            worker.wait(timeout=30)

    def verdict(self) -> Verdict:
        """Return the verdict of the audit, once everything has come to rest."""
        self.wait_empty()
        self.stop_workers()
        delivered = self.broker.read_target(len(self._accepted))
        return audit(
            History(
                accepted=list(self._accepted.values()),
                delivered=delivered,
                dead=self.broker.read_dead_letters(),
            )
        )

    def close(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
        self.producer.close()
        self.broker.close()


def pause() -> None:
    """Let others work between two looks at a condition that has a deadline."""
    time.sleep(PAUSE_S)
