"""A RabbitMQ that a test may stop, starve and kill: the local service stack, in its own folder.

It is started by the same program as the shared one, from a copy, since that keeps its state beside
its code.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.checkout import ROOT, ask, missing

CONTROL = """
from pathlib import Path
import packages, rabbitmq_server
from state import Place, kept_ports
place = Place(Path.cwd())
env = rabbitmq_server.environment(place, place.data("rabbitmq"), kept_ports(place))
answer = [packages.rabbitmq(), env]
"""
TIMEOUT_S = 100.0
SMALL = "+S 1:1 +SDcpu 1:1 +SDio 1"  # of an Erlang that runs one command: it starts sooner


class PrivateRabbit:
    """A node of its own; `stop` it, or it stays."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        shutil.copytree(ROOT / "deploy" / "local", self._folder / "deploy" / "local")

    def start(self) -> None:
        """Start it, or start it again after `kill`, on the same port and with the same data."""
        if self._services("up").returncode:
            missing("a RabbitMQ of the test's own", "run `make services-up` to see why")

    def stop(self) -> None:
        self._services("down")

    @property
    def url(self) -> str:
        return str(self._entry["url"])

    @property
    def port(self) -> int:
        return int(self._entry["port"])

    def freeze(self) -> None:
        """Let it do nothing at all, until `thaw`."""
        os.kill(self._entry["pid"], signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._entry["pid"], signal.SIGCONT)

    def kill(self) -> None:
        os.kill(self._entry["pid"], signal.SIGKILL)

    def starve(self) -> None:
        """Raise the memory alarm: it blocks every connection that publishes."""
        self.control("set_vm_memory_high_watermark", "absolute", "1")

    def feed(self) -> None:
        """End the alarm."""
        self.control("set_vm_memory_high_watermark", "0.4")

    def control(self, *command: str) -> None:
        """Run rabbitmqctl on it."""
        rabbitmqctl(self._folder, *command)

    @property
    def _entry(self) -> dict[str, Any]:
        services = json.loads((self._folder / ".services" / "services.json").read_text())
        entry: dict[str, Any] = services["rabbitmq"]
        return entry

    def _services(self, command: str) -> subprocess.CompletedProcess[bytes]:
        program = self._folder / "deploy" / "local" / "services.py"
        words = [sys.executable, str(program), command, "--only", "rabbitmq"]
        return subprocess.run(words, capture_output=True, check=False)


def rabbitmqctl(checkout: Path, *command: str) -> None:
    """Run rabbitmqctl on the node of a checkout."""
    program, env = _rabbitmqctl_of(checkout, (checkout / ".services" / "ports.json").read_text())
    words = [str(program), *command]
    subprocess.run(words, env=env, capture_output=True, check=True, timeout=TIMEOUT_S)


@cache
def _rabbitmqctl_of(checkout: Path, ports: str) -> tuple[Path, dict[str, str]]:
    """Return rabbitmqctl and its environment; asked again only where a start took other ports."""
    server, env = ask(checkout, CONTROL)
    return Path(server).with_name("rabbitmqctl"), {**env, "RABBITMQ_CTL_ERL_ARGS": SMALL}
