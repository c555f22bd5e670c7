"""Redis, Kafka and RabbitMQ on an address that pods reach."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.checkout import ROOT

GIVEN = ("DUEBRIDGE_K8S_REDIS_URL", "DUEBRIDGE_K8S_KAFKA", "DUEBRIDGE_K8S_RABBITMQ_URL")


class Stack(NamedTuple):
    """Where the services are, from here and from pods alike."""

    redis_url: str
    kafka: str
    rabbitmq_url: str
    pids: dict[str, int]

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """Stop a service that is a process of ours, and let it go on."""
        os.kill(self.pids[name], signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pids[name], signal.SIGCONT)


@contextmanager
def running_stack(home: Path) -> Iterator[Stack | None]:
    """Give the services; None where nobody says on which address pods reach them."""
    redis_url, kafka, rabbitmq_url = (os.environ.get(name) for name in GIVEN)
    if redis_url and kafka and rabbitmq_url:
        yield Stack(redis_url, kafka, rabbitmq_url, pids={})
        return
    host = os.environ.get("DUEBRIDGE_K8S_HOST")
    if not host:
        yield None
        return
    shutil.copytree(ROOT / "deploy" / "local", home / "deploy" / "local")
    program = [sys.executable, str(home / "deploy" / "local" / "services.py")]
    env = {**os.environ, "DUEBRIDGE_SERVICES_HOST": host}
    try:
        subprocess.run([*program, "up"], env=env, check=True)
        found = json.loads((home / ".services" / "services.json").read_text())
        pids = {name: entry["pid"] for name, entry in found.items()}
        yield Stack(
            found["redis"]["url"], found["kafka"]["bootstrap"], found["rabbitmq"]["url"], pids
        )
    finally:
        subprocess.run([*program, "down"], env=env, check=True)
