"""Configurations, workers and directories that several tests of a whole duebridge share.

In a `Site` any version runs; the broker is the one in memory, and `recording` writes down what it
confirms, in whatever process.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

from duebridge.config.models import Config
from duebridge.store.server.embedded import stop_embedded
from tests.support.checkout import ROOT
from tests.support.command import (
    ENVIRONMENT,
    FORKS,
    PROGRAM,
    WITHIN_S,
    Command,
    Done,
    hear_ctrl_c,
    wait_until,
)
from tests.support.versions import CURRENT, Version

RECORDING = ROOT / "tests" / "acceptance" / "operator" / "recording.py"
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

# Instead of that of 3 s: a worker that stands for seconds, on a busy machine, repeats nothing.
LONG_LEASE = "lease: 30s"

IMPATIENT = """\
from duebridge.store.server import connection
connection.REPEAT_FOR_S = 1.0
"""


class Recorded(NamedTuple):
    """One message that the broker has confirmed."""

    id: str
    topic: str
    attempt: int
    due_at_ms: int
    at_ms: int
    pid: int
    code: str


def memory_config(routes: dict[str, Any], **blocks: Any) -> Config:
    """Return a configuration with one broker, `memory`, unless `blocks` has others."""
    brokers = {"memory": {"type": "memory"}}
    return Config.model_validate({"version": 1, "brokers": brokers, "routes": routes, **blocks})


def impatient(home: Path) -> dict[str, str]:
    """Return the environment of a command that gives its store up after a second, not ten."""
    (home / "sitecustomize.py").write_text(IMPATIENT)
    return {"PYTHONPATH": os.pathsep.join([str(home), *filter(None, [os.getenv("PYTHONPATH")])])}


def fetch(port: int, path: str, accept: str = "*/*") -> tuple[int, str]:
    """Return status and body of what a worker answers over HTTP."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


class Worker:
    """A `duebridge run` that is up."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._log = log

    def logged(self, event: str = "") -> list[dict[str, Any]]:
        """The lines of its log so far, or those of one event."""
        whole, _, _ = self._log.read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if event in ("", line["event"])]

    def said(self) -> str:
        """All that it wrote so far, lines of others than its log among it."""
        return self._log.read_text()

    def events(self) -> list[str]:
        return [line["event"] for line in self.logged()]

    def health_port(self) -> int:
        wait_until(lambda: self.logged("health"), "the port")
        return int(self.logged("health")[0]["port"])

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(WITHIN_S)


@contextmanager
def up(process: "subprocess.Popen[bytes]", log: Path) -> Iterator[Worker]:
    """Give a worker once it has started; at the end it is killed, if it still runs."""
    worker = Worker(process, log)
    try:
        wait_until(lambda: "started" in worker.events(), f"a worker to start, see {log}")
        yield worker
    finally:
        process.kill()
        process.wait()


@contextmanager
def running(duebridge: Command, *options: str, **env: str) -> Iterator[Worker]:
    """Give the worker of a command."""
    log = duebridge.home / f"{token_hex(4)}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [PROGRAM, "run", *options],
            cwd=duebridge.home,
            env={**ENVIRONMENT, **env},
            stderr=stderr,
            preexec_fn=hear_ctrl_c,
        )
    with up(process, log) as worker:
        yield worker


class Site:
    """Where commands run; each may be of another version."""

    def __init__(self, home: Path, config: str, name: str = "duebridge") -> None:
        self.home = home
        self.file = home / f"{name}.yaml"
        self.file.write_text(config)
        self._records = home / "records.jsonl"
        self._logs = 0

    def __call__(self, *args: str, code: Version = CURRENT, stdin: bytes = b"") -> Done:
        """Run a command to its end: in a fork, if it is this version's and publishes nothing."""
        if code == CURRENT and "run" not in args:
            words = ("--config", str(self.file), *args)
            ended, out, err = FORKS.run(words, stdin, self.home, ENVIRONMENT, WITHIN_S)
            return Done(ended, out.decode(), err.decode())
        pipe = subprocess.PIPE
        done = self._start(args, code, stdin=pipe, stdout=pipe, stderr=pipe)
        out, err = done.communicate(stdin, timeout=WITHIN_S)
        return Done(done.returncode, out.decode(), err.decode())

    def _start(
        self, args: Sequence[str], code: Version, **streams: object
    ) -> "subprocess.Popen[bytes]":
        words = [code.python, str(RECORDING), str(self._records), "--config", str(self.file)]
        env = {**ENVIRONMENT, "PYTHONPATH": code.path, "PYTHONSAFEPATH": "1"}
        return subprocess.Popen([*words, *args], cwd=self.home, env=env, **streams)

    @contextmanager
    def running(self, *options: str, code: Version = CURRENT) -> Iterator[Worker]:
        """Give a worker of the site."""
        self._logs += 1
        log = self.home / f"{self.file.stem}-{self._logs}.log"
        with log.open("wb") as stderr:
            process = self._start(
                ("run", *options), code, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
            )
        with up(process, log) as worker:
            yield worker

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
