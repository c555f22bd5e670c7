"""The same services as containers, for machines whose packages do not have them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from state import HOST, Place, Service, ServiceError, ports

INSTALL = "curl -fsSL https://get.docker.com | sudo sh"
COMPOSE = Path(__file__).resolve().parent / "compose.yaml"


def is_there() -> bool:
    """Whether an engine answers and understands `compose`."""
    docker = shutil.which("docker")
    if docker is None:
        return False
    try:
        for asked in (["version", "--format", "{{.Server.Version}}"], ["compose", "version"]):
            subprocess.run([docker, *asked], capture_output=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def line_to_type() -> str:
    """Return the line for who asked for Docker where no engine (with `compose`) answers."""
    if shutil.which("docker"):
        return "sudo systemctl start docker && docker compose version"
    return INSTALL


def _compose(place: Place, kept: dict[str, int], *arguments: str) -> str:
    variables = {f"DUEBRIDGE_{name.upper()}_PORT": str(port) for name, port in kept.items()}
    command = ["docker", "compose", "-p", f"duebridge-{place.tag}", "-f", str(COMPOSE), *arguments]
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ServiceError(f"{done.stderr.strip()}\nthis failed: {' '.join(command)}")
    return done.stdout


def start(place: Place, name: str) -> Service:
    """Start one container and say where it answers."""
    kept = ports(place, [name])
    _compose(place, kept, "up", "-d", "--no-deps", name)
    container = f"duebridge-{place.tag}-{name}-1"
    return Service(
        name, HOST, kept[name], f"docker logs {container}", f"volume of {container}", "docker"
    )


def last_lines(place: Place, name: str) -> str:
    """Return the end of a container's log."""
    return _compose(place, {name: 1}, "logs", "--no-color", "--tail", "20", name)


def stop(place: Place, name: str) -> None:
    """Remove the container; its volume stays: as with native services, data survive."""
    _compose(place, {name: 1}, "rm", "--stop", "--force", name)
