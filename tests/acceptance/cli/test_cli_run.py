"""`duebridge run`: a worker process from its start over other configurations to its drain."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.site import fetch, running
from tests.support.command import PROGRAM, WITHIN_S, Command, wait_until
from tests.support.servers import free_port

ADDED = "  added: {target: {broker: here, topic: added}}\n"
TWICE = """\
from duebridge.cli.signals import Signals
signals = Signals()
signals.begin()
print("up", flush=True)
while not signals.wait(60):
    pass
print("up", flush=True)
while True:
    signals.wait(60)
"""
HUNG_UP = """\
import signal, sys
signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))
from duebridge.cli.signals import Signals
signals = Signals()
signals.begin()
print("up", flush=True)
while True:
    signals.wait(60)
    print(signals.stopped_at is not None, signals.take_reload(), flush=True)
"""
# A signal from without would come while other threads run: a dump of their stacks may fail.
CRASHING = """\
import faulthandler, signal
signal.signal(signal.SIGUSR2, lambda *_: faulthandler._sigabrt())
"""


def deliver(duebridge: Command, route: str) -> None:
    """Have the worker that runs deliver an envelope."""
    duebridge("send", route, "hello", "--delay", "100ms", "--id", "due")
    wait_until(lambda: duebridge("get", route, "due").code == 1, "the delivery")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_signalled_after_a_delivery_drains_and_leaves_what_is_not_due(
    duebridge: Command, number: int
) -> None:
    duebridge("send", "invoices", "hello", "--delay", "1h", "--id", "later")
    with running(duebridge) as worker:
        deliver(duebridge, "invoices")
        assert worker.end(number) == 0
        assert worker.events()[-1] == "drained"
    invoices = duebridge("stats", "--output", "json").json()["routes"][1]
    assert (invoices["unack"], invoices["pending"]) == (0, 1)


def test_run_with_a_health_port_tells_what_soon_will_be_due(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", "--delay", "50s", "--id", "soon")
    with running(duebridge, "--health-port", "0") as worker:
        port = worker.health_port()
        wait_until(lambda: fetch(port, "/due")[0] == 200, "the first look")
        found = json.loads(fetch(port, "/due")[1])
        assert found["routes"]["reminders"]["due_within_s"] == {"60": 1, "300": 1}
        _, text = fetch(port, "/metrics")
        assert 'duebridge_store_call_seconds_count{script="stats"}' in text
        within = 'duebridge_due_within{route="reminders",shard="0",window="60s"} 1.0'
        wait_until(lambda: within in fetch(port, "/metrics")[1], "the gauge lease of the shard")
        memory = "duebridge_store_memory_used_bytes "
        wait_until(lambda: memory in fetch(port, "/metrics")[1], "a sight")
        assert worker.end() == 0


def test_run_that_starts_without_a_route_that_holds_envelopes_is_not_ready(
    duebridge: Command,
) -> None:
    duebridge("send", "invoices", "hello", "--delay", "1h", "--id", "later")
    file = duebridge.home / "duebridge.yaml"
    whole = file.read_text()
    file.write_text("".join(line for line in whole.splitlines(True) if "invoices" not in line))
    with running(duebridge, "--health-port", "0") as worker:
        port = worker.health_port()
        reason = "routes.invoices: expected, since the store holds envelopes of it"
        wait_until(lambda: fetch(port, "/readyz")[1].startswith(reason), "only that to be wrong")
        assert fetch(port, "/readyz")[0] == 503
        assert fetch(port, "/livez")[0] == 200
        assert worker.logged("route_missing")[0]["reason"].startswith(reason)
        deliver(duebridge, "reminders")
        file.write_text(whole)
        worker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: fetch(port, "/readyz") == (200, "ok\n"), "the route to be taken over")
        assert worker.end() == 0


def test_run_on_a_busy_health_port_names_it(duebridge: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))  # noqa: S104
        taken.listen()
        port = taken.getsockname()[1]
        done = duebridge("run", "--health-port", str(port))
    assert done.code == 2
    assert f"--health-port: cannot listen on port {port}: Address already in use" in done.err


@pytest.mark.parametrize(
    ("library", "said"),
    [
        ("librdkafka", 'options: Invalid value "nonsense" for configuration property'),
        ("kafka-python", "options.compression.type: expected one of none, gzip"),
    ],
)
def test_run_with_an_option_that_a_client_refuses_names_the_broker(
    duebridge: Command, library: str, said: str
) -> None:
    broker = f'{{type: kafka, bootstrap_servers: ["127.0.0.1:1"], client: {library}'
    config = duebridge.file.read_text().replace(
        "{type: memory}", f"{broker}, options: {{compression.type: nonsense}}}}"
    )
    duebridge.file.write_text(config)
    done = duebridge("run")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert f"duebridge: brokers.here.{said}" in done.err


def test_second_signal_ends_at_once_with_130() -> None:
    command = [sys.executable, "-c", TWICE]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_run_takes_a_changed_file_over_and_delivers_its_route(duebridge: Command) -> None:
    with running(duebridge) as worker:
        duebridge.file.write_text(duebridge.file.read_text() + ADDED)
        wait_until(lambda: worker.logged("config_swapped"), "the swap")
        [line] = worker.logged("config_swapped")
        assert (line["added"], line["removed"], line["changed"]) == (["added"], [], [])
        deliver(duebridge, "added")
        assert worker.end() == 0


def test_run_at_sighup_reads_references_anew(duebridge: Command) -> None:
    days = duebridge.home / "days"
    days.write_text("30d\n")
    text = duebridge.file.read_text()
    duebridge.file.write_text(text.replace("max_delay: 30d", f"max_delay: '${{file:{days}}}'"))
    with running(duebridge) as worker:
        days.write_text("40d\n")
        worker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: worker.logged("config_swapped"), "the swap")
        assert worker.logged("config_swapped")[0]["changed"] == ["reminders"]
        assert worker.end() == 0


def handles(process: "subprocess.Popen[bytes]", number: int) -> bool:
    """Return whether a process has a handler of its own for a signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    [caught] = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--until-empty",), 1)])
def test_run_signalled_while_it_waits_for_its_store_takes_sighup_and_ends_at_sigterm(
    duebridge: Command, options: tuple[str, ...], code: int
) -> None:
    config = duebridge.file.read_text()
    nowhere = re.sub(r"url: [^,}\n]+", f'url: "redis://127.0.0.1:{free_port()}/0"', config, count=1)
    duebridge.file.write_text(nowhere)
    with subprocess.Popen([PROGRAM, "run", *options], cwd=duebridge.home) as process:
        try:
            wait_until(lambda: handles(process, signal.SIGHUP), "the handler")
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WITHIN_S) == code
        finally:
            process.kill()


def test_run_takes_sighup_before_it_has_read_its_configuration(duebridge: Command) -> None:
    """As a reload does that follows the start at once: only then come the slow imports."""
    pipe = duebridge.home / "pipe.yaml"
    os.mkfifo(pipe)
    with subprocess.Popen([PROGRAM, "--config", pipe, "run"], cwd=duebridge.home) as process:
        try:
            wait_until(lambda: handles(process, signal.SIGHUP), "the handler")
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WITHIN_S) == 0
        finally:
            process.kill()


def test_run_that_crashes_in_c_code_leaves_the_stack_of_each_thread(duebridge: Command) -> None:
    """As images and pods start it: by itself Python says nothing of a signal from C code."""
    (duebridge.home / "sitecustomize.py").write_text(CRASHING)
    with running(duebridge, PYTHONFAULTHANDLER="1", PYTHONPATH=str(duebridge.home)) as worker:
        assert worker.end(signal.SIGUSR2) == -signal.SIGABRT
    told = worker.said().partition("Fatal Python error: Aborted")[2]
    assert "Current thread" in told
    assert "/duebridge/worker/" in told


def test_run_whose_terminal_was_closed_ends(duebridge: Command) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([PROGRAM, "run"], cwd=duebridge.home, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while b"started" not in seen:
            seen += os.read(ours, 4096)
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        try:
            process.wait(30)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("inherited", "answers"),
    [
        ("SIG_DFL", [b"True False\n"] * 2),  # the shell sends one, and at its end the kernel
        ("SIG_IGN", [b"False True\n"] * 2),  # as `nohup` does
    ],
)
def test_hangups_of_a_closed_terminal_stop_once_unless_they_were_ignored(
    inherited: str, answers: list[bytes]
) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", HUNG_UP, inherited]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as process:
        try:
            assert process.stdout is not None
            os.close(theirs)
            assert process.stdout.readline() == b"up\n"
            os.close(ours)
            for answer in answers:
                process.send_signal(signal.SIGHUP)
                assert process.stdout.readline() == answer
        finally:
            process.kill()
