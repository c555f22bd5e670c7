"""A directory with a configuration, in which any version of duebridge runs, and what was delivered.

The broker is the one in memory; `recording` writes down what it confirms, in whatever process.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from duebridge.store.embedded import stop_embedded
from tests.support.checkout import ROOT
from tests.support.command import ENVIRONMENT, WITHIN_S, Done, wait_until

PROGRAM = ROOT / "tests" / "acceptance" / "recording.py"
CONFIG = """\
version: 1
store: {{url: "{url}"}}
brokers: {{here: {{type: memory}}}}
worker: {{publish_deadline: 1300ms}}
defaults: {{lease: 3s, retry: {{initial: 1h, max: 1h, jitter: none}}}}
routes:
  orders: {{target: {{broker: here, topic: orders}}, shards: 4, remember: 1h}}
  others:
    target: {{broker: here, topic: others}}
    dead_letter: {{broker: here, topic: others-dlt}}
"""


class Version(NamedTuple):
    """A duebridge: the interpreter that has it, what is put before its path, and where it lies."""

    python: str
    path: str
    where: Path


CURRENT = Version(sys.executable, "", ROOT)


class Recorded(NamedTuple):
    """One message that the broker has confirmed."""

    id: str
    topic: str
    attempt: int
    due_at_ms: int
    at_ms: int
    pid: int
    code: str


class Worker:
    """A `duebridge run` that is up."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._log = log

    def logged(self) -> list[dict[str, object]]:
        """The lines of its log so far."""
        whole, _, _ = self._log.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def events(self) -> list[object]:
        return [line["event"] for line in self.logged()]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(WITHIN_S)


class Site:
    """Where commands run; each may be of another version."""

    def __init__(self, home: Path, config: str, name: str = "duebridge") -> None:
        self.home = home
        self.file = home / f"{name}.yaml"
        self.file.write_text(config)
        self._records = home / "records.jsonl"
        self._logs = 0

    def __call__(self, *args: str, code: Version = CURRENT, stdin: bytes = b"") -> Done:
        """Run a command to its end."""
        pipe = subprocess.PIPE
        done = self._start(args, code, stdin=pipe, stdout=pipe, stderr=pipe)
        out, err = done.communicate(stdin, timeout=WITHIN_S)
        return Done(done.returncode, out.decode(), err.decode())

    def _start(
        self, args: Sequence[str], code: Version, **streams: object
    ) -> "subprocess.Popen[bytes]":
        words = [code.python, str(PROGRAM), str(self._records), "--config", str(self.file)]
        env = {**ENVIRONMENT, "PYTHONPATH": code.path, "PYTHONSAFEPATH": "1"}
        return subprocess.Popen([*words, *args], cwd=self.home, env=env, **streams)

    @contextmanager
    def running(self, *options: str, code: Version = CURRENT) -> Iterator[Worker]:
        """Give a worker that has started; at the end it is killed, if it still runs."""
        self._logs += 1
        log = self.home / f"{self.file.stem}-{self._logs}.log"
        with log.open("wb") as stderr:
            process = self._start(
                ("run", *options), code, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
            )
        worker = Worker(process, log)
        try:
            wait_until(lambda: "started" in worker.events(), f"a worker to start, see {log}")
            yield worker
        finally:
            process.kill()
            process.wait()

    def send(
        self, route: str, delays: dict[str, str], code: Version = CURRENT, **fields: str
    ) -> None:
        """Schedule envelopes by id, each due after its delay."""
        lines = [
            json.dumps({"id": each, "body": f"body of {each}", "delay": delay, **fields})
            for each, delay in delays.items()
        ]
        sent = self("send", route, "-", "--jsonl", code=code, stdin="\n".join(lines).encode())
        assert sent.code == 0, sent

    def records(self) -> list[Recorded]:
        """What was delivered so far, whoever did it, in the order of the confirms."""
        if not self._records.exists():
            return []
        whole, _, _ = self._records.read_text().rpartition("\n")
        return [Recorded(**json.loads(line)) for line in whole.splitlines()]

    def delivered(self) -> list[str]:
        return [each.id for each in self.records()]

    def states(self, route: str) -> dict[str, int]:
        """How many envelopes the route has in each state."""
        routes = self("stats", "--output", "json").json()["routes"]
        found = next(each for each in routes if each["route"] == route)
        return {name: found[name] for name in ("pending", "ready", "unack", "retry", "dead")}


@contextmanager
def embedded_site(home: Path) -> Iterator[Site]:
    """Give a site on an embedded store of its own."""
    store = home / "store"
    yield Site(home, CONFIG.format(url=f"embedded:{store}"))
    stop_embedded(store)
