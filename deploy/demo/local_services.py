"""Kafka and RabbitMQ as deploy/local starts them, left as they were found."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "deploy" / "local" / "services.py"
NAMES = ("kafka", "rabbitmq")


class Addresses(NamedTuple):
    """Where the brokers are; nothing for one that was not asked for."""

    bootstrap: str
    url: str


@contextmanager
def local_services(*names: str) -> Iterator[Addresses]:
    """Give brokers that answer, all if none is named; what did not run before is stopped again.

    Raises `CalledProcessError` where they cannot be started; why was printed.
    """
    absent = [name for name in names or NAMES if _call("status", name, quiet=True).returncode != 0]
    try:
        if absent:
            _call("up", *absent).check_returncode()
        yield _addresses()
    finally:
        if absent:
            _call("down", *absent)


def _call(command: str, *names: str, quiet: bool = False) -> "subprocess.CompletedProcess[bytes]":
    out = subprocess.DEVNULL if quiet else None
    arguments = [sys.executable, str(PROGRAM), command, "--only", ",".join(names)]
    return subprocess.run(arguments, check=False, stdout=out)


def _addresses() -> Addresses:
    running = json.loads((ROOT / ".services" / "services.json").read_text())
    found = {name: running.get(name, {}) for name in NAMES}
    return Addresses(found["kafka"].get("bootstrap", ""), found["rabbitmq"].get("url", ""))
