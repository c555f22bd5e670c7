"""The programs that the services need: find them, install them, or say what to type."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from functools import cache, partial
from glob import glob
from pathlib import Path

import docker_engine
from state import ServiceError, cache_folder, locked

KAFKA = "4.3.1"
OLDEST_JAVA = 17
# A user's PATH often lacks the folders where servers are.
EXTRA_PATH = ":/usr/sbin:/usr/local/sbin:/sbin:/opt/homebrew/bin:/opt/homebrew/sbin"
# Not the `rabbitmq-server` of the PATH first: Debian's is a wrapper that changes the user.
RABBITMQ = (
    "/usr/lib/rabbitmq/bin/rabbitmq-server",
    "/opt/homebrew/opt/rabbitmq/sbin/rabbitmq-server",
)


class MissingError(ServiceError):
    """A program is not there."""


def _which(name: str) -> str:
    found = shutil.which(name, path=os.environ.get("PATH", os.defpath) + EXTRA_PATH)
    if found is None:
        raise MissingError(f"{name} is not installed")
    return found


def redis() -> str:
    """Return Redis' server program."""
    return _which("redis-server")


def epmd() -> str:
    """Return Erlang's port mapper."""
    return _which("epmd")


def maven() -> str:
    """Return Maven's program."""
    return _which("mvn")


def kafka_jars() -> Path:
    """Return where the jars lie once they are fetched: whole or not at all."""
    return cache_folder() / f"kafka-{KAFKA}"


def rabbitmq() -> str:
    """Return RabbitMQ's start script."""
    return next((path for path in RABBITMQ if os.access(path, os.X_OK)), None) or _which(
        "rabbitmq-server"
    )


@cache
def _java_major(path: str) -> int:
    shown = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', shown)
    return int(found[1]) if found else 0


def java() -> str:
    """Return the first Java new enough: the user's choice, the PATH's, then any other."""
    home = os.environ.get("JAVA_HOME")
    chosen = [f"{home}/bin/java"] if home else []
    chosen += [shutil.which("java") or "", *sorted(glob("/usr/lib/jvm/*/bin/java"))]
    for path in chosen:
        if path and os.access(path, os.X_OK) and _java_major(path) >= OLDEST_JAVA:
            return path
    raise MissingError(f"Java {OLDEST_JAVA} or later is not installed")


def _is_there(find: Callable[[], str]) -> bool:
    try:
        find()
    except MissingError:
        return False
    return True


def missing(names: Iterable[str]) -> list[str]:
    """Return what is still needed for these services, by neutral names."""
    absent: list[str] = []
    wanted = set(names)
    if "redis" in wanted and not _is_there(redis):
        absent.append("redis")
    if "rabbitmq" in wanted and not (_is_there(rabbitmq) and _is_there(epmd)):
        absent.append("rabbitmq")
    if "kafka" in wanted and not _is_there(java):
        absent.append("java")
    if "kafka" in wanted and not kafka_jars().is_dir() and not _is_there(maven):
        absent.append("maven")
    return absent


def missing_tools() -> list[str]:
    """Return what tests call beside the services, and is not there."""
    names = ("promtool", "prometheus")
    return [] if all(_is_there(partial(_which, name)) for name in names) else ["prometheus"]


def _apt_names(absent: Iterable[str]) -> list[str]:
    shown = subprocess.run(
        ["env", "LC_ALL=C", "apt-cache", "policy", "openjdk-17-jre-headless"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    # An old release's default is too old, a new one has a later default and no longer this one.
    is_offered = re.search(r"Candidate: \d", shown) is not None
    jre = "openjdk-17-jre-headless" if is_offered else "default-jre-headless"
    names = {
        "redis": "redis-server",
        "rabbitmq": "rabbitmq-server",
        "java": jre,
        "maven": "maven",
        "prometheus": "prometheus prometheus-node-exporter-",  # without what it recommends
    }
    return [word for name in absent for word in names[name].split()]


def _as_root() -> list[str] | None:
    """Return what to put before a command that needs root; None when we may not."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo is None:
        return None
    asked = subprocess.run([sudo, "-n", "true"], capture_output=True, check=False)
    return [sudo, "-n"] if asked.returncode == 0 else None


def can_install() -> bool:
    """Tell whether there is an apt-get that we may use."""
    return shutil.which("apt-get") is not None and _as_root() is not None


def line_to_type(absent: Iterable[str]) -> str:
    """Return the one line that makes everything absent present."""
    absent = list(absent)
    if shutil.which("apt-get"):
        line = f"apt-get update && apt-get install -y {' '.join(_apt_names(absent))}"
        return f"sudo sh -c '{line}'" if shutil.which("sudo") else f"su -c '{line}'"
    if shutil.which("brew"):
        return "brew install " + " ".join({"java": "openjdk"}.get(name, name) for name in absent)
    return docker_engine.INSTALL


def install(absent: Iterable[str]) -> None:
    """Install through apt-get; one at a time, as two would only fight for its lock."""
    prefix = _as_root() or []
    quiet = ["-qq", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300"]
    with locked(cache_folder() / "packages.lock"):
        _apt([*prefix, "apt-get", "update", *quiet])
        names = _apt_names(absent)
        print(f"installing {' '.join(names)} with apt-get", flush=True)
        environment = ["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1"]
        _apt([*prefix, *environment, "apt-get", "install", "-y", *quiet, *names])


def _apt(command: list[str]) -> None:
    """Run apt-get silently: its many words only matter when it fails."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise ServiceError(f"{last}\nthis failed: {' '.join(command)}")
