"""`duebridge run`: a worker process from its start to its drain."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.support.command import Command, embedded_command, wait_until

TWICE = """\
from duebridge.cli.commands.run import Signals
signals = Signals()
print("up", flush=True)
while not signals.wait(60):
    pass
print("up", flush=True)
while True:
    signals.wait(60)
"""


@pytest.fixture
def duebridge(tmp_path: Path) -> Iterator[Command]:
    with embedded_command(tmp_path) as command:
        yield command


class Worker:
    """A `duebridge run` and the log lines that it has written so far."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[bytes] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, b""))

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in list(self.lines)]

    def end_with(self, number: int) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(60)
        self._thread.join()
        return code


@contextmanager
def running(duebridge: Command, *args: str, **env: str) -> Iterator[Worker]:
    with duebridge.start(*args, **env) as process:
        worker = Worker(process)
        try:
            wait_until(lambda: "started" in worker.events(), "the worker to start")
            yield worker
        finally:
            process.kill()
            worker.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_signalled_after_a_delivery_drains_and_exits_0(duebridge: Command, number: int) -> None:
    with running(duebridge, "--config", "duebridge.yaml", "run") as worker:
        duebridge("send", "invoices", "hello", "--delay", "100ms", "--id", "due")
        wait_until(lambda: duebridge("get", "invoices", "due").code == 1, "the delivery")
        assert worker.end_with(number) == 0
        assert worker.events()[-1] == "drained"
    assert duebridge("stats", "--output", "json").json()["routes"][1]["unack"] == 0


def test_run_leaves_what_is_not_due(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", "--delay", "1h", "--id", "later")
    with running(duebridge, "run") as worker:
        duebridge("send", "reminders", "hello", "--delay", "1ms", "--id", "due")
        wait_until(lambda: duebridge("get", "reminders", "due").code == 1, "the delivery")
        assert worker.end_with(signal.SIGTERM) == 0
    assert duebridge("get", "reminders", "later", "--output", "json").json()["state"] == "pending"


def test_run_with_a_health_port_tells_what_soon_will_be_due(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", "--delay", "50s", "--id", "soon")
    with running(duebridge, "run", "--health-port", "0") as worker:
        wait_until(lambda: "health" in worker.events(), "the port")
        port = next(json.loads(line)["port"] for line in worker.lines if b'"health"' in line)
        wait_until(lambda: fetched(port, "/due")[0] == 200, "the first look")
        found = json.loads(fetched(port, "/due")[1])
        assert found["routes"]["reminders"]["due_within_s"] == {"60": 1, "300": 1}
        _, text = fetched(port, "/metrics")
        assert 'duebridge_store_call_seconds_count{script="stats"}' in text
        assert 'duebridge_due_within{route="reminders",shard="0",window="60s"} 1.0' in text
        wait_until(
            lambda: "duebridge_store_memory_used_bytes " in fetched(port, "/metrics")[1], "a sight"
        )
        assert worker.end_with(signal.SIGTERM) == 0


def fetched(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_run_missing_extra_exits_2_with_the_line_to_type(duebridge: Command) -> None:
    text = duebridge.file.read_text().replace("type: memory", 'type: rabbitmq, url: "amqp://h/"')
    text = text.replace("topic: reminders", 'exchange: "", routing_key: a')
    text = text.replace("topic: invoices", 'exchange: "", routing_key: b')
    duebridge.file.write_text(text)
    (duebridge.home / "pika").mkdir()
    hidden = duebridge.home / "pika" / "__init__.py"
    hidden.write_text("raise ModuleNotFoundError(\"No module named 'pika'\", name='pika')")
    refused = duebridge("run", PYTHONPATH=str(duebridge.home))
    assert (refused.code, refused.out) == (2, "")
    assert "pip install 'duebridge[rabbitmq]'" in refused.err
    assert len(refused.err.splitlines()) == 1


def test_second_signal_ends_at_once_with_130() -> None:
    command = [sys.executable, "-c", TWICE]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
