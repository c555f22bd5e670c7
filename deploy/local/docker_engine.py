"""The same services as containers, for machines whose packages do not have them."""

import os
import shutil
import subprocess
from pathlib import Path

from packages import run_quietly
from state import Place, Service, ports

COMPOSE = Path(__file__).resolve().parent / "compose.yaml"


def is_there() -> bool:
    """Whether an engine answers and understands `compose`."""
    docker = shutil.which("docker") or "/bin/false"
    asked = (["version", "--format", "{{.Server.Version}}"], ["compose", "version"])
    commands = [["timeout", "10", docker, *words] for words in asked]
    return not any(subprocess.run(each, capture_output=True).returncode for each in commands)


def _compose(place: Place, port: int, name: str, *arguments: str) -> str:
    environment = {**os.environ, f"DUEBRIDGE_{name.upper()}_PORT": str(port)}
    command = ["docker", "compose", "-p", f"duebridge-{place.tag}", "-f", str(COMPOSE)]
    return run_quietly([*command, *arguments, name], environment)


def start(place: Place, name: str) -> Service:
    """Start one container and say where it answers."""
    port = ports(place, [name])[name]
    _compose(place, port, name, "up", "-d", "--no-deps")
    container = f"duebridge-{place.tag}-{name}-1"
    places = {"log": f"docker logs {container}", "data": f"volume of {container}"}
    return Service(name, port, **places, engine="docker")


def log(place: Place, name: str) -> str:
    """Return the end of a container's log."""
    return _compose(place, 1, name, "logs", "--no-color", "--tail", "20")


def stop(place: Place, name: str) -> None:
    """Remove the container; its volume stays: as with native services, data survive."""
    _compose(place, 1, name, "rm", "--stop", "--force")
