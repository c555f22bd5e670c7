"""`duebridge serve` has the console at `/`, beside the interface for programs."""

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.command import CONFIG, PROGRAM, Command, wait_until
from tests.support.servers import free_port, listens, redis_server


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def command(tmp_path: Path, port: int) -> Iterator[Command]:
    """The command on a Redis of its own; `serve` listens at `port`."""
    with redis_server(tmp_path, "--appendonly", "yes") as redis_port:
        text = f"{CONFIG}serve: {{{{listen: '127.0.0.1:{port}'}}}}\n"
        yield Command(tmp_path, f"redis://127.0.0.1:{redis_port}/0", text)


def test_serve_has_the_console_beside_the_interface(command: Command, port: int) -> None:
    process = command.start("serve")
    try:
        wait_until(lambda: listens(port), "duebridge serve")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            page = client.get("/")
            assert "<h1>Overview</h1>" in page.text
            assert "reminders" in page.text
            assert client.get("/v1/routes").status_code == 200
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_serve_at_sighup_serves_on_until_its_terminal_is_closed(
    command: Command, port: int
) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([PROGRAM, "serve"], cwd=command.home, stderr=theirs) as process:
        os.close(theirs)
        try:
            wait_until(lambda: listens(port), "duebridge serve")
            process.send_signal(signal.SIGHUP)
            assert httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=60).status_code == 200
            os.close(ours)
            process.send_signal(signal.SIGHUP)
            assert process.wait(60) == 0
        finally:
            process.kill()
