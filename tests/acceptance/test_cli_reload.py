"""`duebridge run` notices another configuration by itself, and at SIGHUP."""

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_cli_run import Worker, running
from tests.support.command import PROGRAM, Command, embedded_command, wait_until

ADDED = "  added: {target: {broker: here, topic: added}}\n"


@pytest.fixture
def duebridge(tmp_path: Path) -> Iterator[Command]:
    with embedded_command(tmp_path) as command:
        yield command


def told(worker: Worker, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in list(worker.lines)]
    return [line for line in lines if line["event"] == event]


def test_run_takes_a_changed_file_over_and_delivers_its_route(duebridge: Command) -> None:
    with running(duebridge, "run") as worker:
        duebridge.file.write_text(duebridge.file.read_text() + ADDED)
        wait_until(lambda: told(worker, "config_swapped"), "the swap")
        [line] = told(worker, "config_swapped")
        assert (line["added"], line["removed"], line["changed"]) == (["added"], [], [])
        duebridge("send", "added", "hello", "--delay", "1ms", "--id", "due")
        wait_until(lambda: duebridge("get", "added", "due").code == 1, "the delivery")
        assert worker.end_with(signal.SIGTERM) == 0


def test_run_at_sighup_reads_references_anew(duebridge: Command) -> None:
    days = duebridge.home / "days"
    days.write_text("30d\n")
    text = duebridge.file.read_text()
    duebridge.file.write_text(text.replace("max_delay: 30d", f"max_delay: '${{file:{days}}}'"))
    with running(duebridge, "run") as worker:
        days.write_text("40d\n")
        worker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: told(worker, "config_swapped"), "the swap")
        assert told(worker, "config_swapped")[0]["changed"] == ["reminders"]
        assert worker.end_with(signal.SIGTERM) == 0


def test_run_takes_a_removed_route_over_once_it_is_empty(duebridge: Command) -> None:
    duebridge("send", "invoices", "hello", "--delay", "1h", "--id", "later")
    text = duebridge.file.read_text()
    with running(duebridge, "run") as worker:
        duebridge.file.write_text("".join(text.splitlines(keepends=True)[:-1]))
        wait_until(lambda: told(worker, "config_refused"), "the refusal")
        [reason] = told(worker, "config_refused")[0]["reasons"]
        assert reason.startswith("routes.invoices: expected, since the store holds envelopes")
        old = duebridge.home / "old.yaml"
        old.write_text(text)
        duebridge("cancel", "--config", str(old), "invoices", "later")
        wait_until(lambda: told(worker, "config_swapped"), "the swap")
        assert told(worker, "config_swapped")[0]["removed"] == ["invoices"]
        assert worker.end_with(signal.SIGTERM) == 0


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
