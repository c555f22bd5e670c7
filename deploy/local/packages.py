"""The programs that the services need: find them, install them, or say what to type."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from glob import glob
from pathlib import Path

from state import ServiceError, cache_folder, locked

KAFKA = "4.3.1"
OLDEST_JAVA = 17
DOCKER = "curl -fsSL https://get.docker.com | sudo sh"
# A user's PATH often lacks the folders where servers are.
EXTRA_PATH = ":/usr/sbin:/usr/local/sbin:/sbin"
# Before the `rabbitmq-server` of the PATH: Debian's is a wrapper that changes the user.
RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
APT_NAMES = {
    "redis": "redis-server",
    "rabbitmq": "rabbitmq-server",
    "maven": "maven",
    "prometheus": "prometheus prometheus-node-exporter-",  # without what it recommends
}


def which(name: str) -> str:
    """Return a program's path; raises `ServiceError`."""
    if found := shutil.which(name, path=os.environ.get("PATH", os.defpath) + EXTRA_PATH):
        return found
    raise ServiceError(f"{name} is not installed")


def rabbitmq() -> str:
    """Return RabbitMQ's start script."""
    return RABBITMQ if os.access(RABBITMQ, os.X_OK) else which("rabbitmq-server")


@cache
def java() -> str:
    """Return the first Java new enough: the user's choice, the PATH's, then any other."""
    home = os.environ.get("JAVA_HOME")
    chosen = [f"{home}/bin/java"] if home else []
    chosen += [shutil.which("java") or "", *sorted(glob("/usr/lib/jvm/*/bin/java"))]
    for path in filter(partial(os.access, mode=os.X_OK), chosen):
        told = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
        found = re.search(r'version "(\d+)', told.stderr)
        if found and int(found[1]) >= OLDEST_JAVA:
            return path
    raise ServiceError(f"Java {OLDEST_JAVA} or later is not installed")


def chromium() -> str:
    """Return the browser without windows, which takes a third of the CPU, or else the whole one."""
    return shutil.which("chromium-headless-shell") or which("chromium")


def kafka_jars() -> Path:
    """Return where the jars lie once they are fetched: whole or not at all."""
    return cache_folder() / f"kafka-{KAFKA}"


def _is_there(find: Callable[[], str]) -> bool:
    try:
        return bool(find())
    except ServiceError:
        return False


def missing(names: Iterable[str]) -> list[str]:
    """Return what is still needed for these services and `tools`, by neutral names."""
    wanted: dict[str, dict[str, Callable[[], str]]] = {
        "redis": {"redis": partial(which, "redis-server")},
        "rabbitmq": {"rabbitmq": rabbitmq},
        "kafka": {"java": java}
        | ({} if kafka_jars().is_dir() else {"maven": partial(which, "mvn")}),
        "tools": {
            "chromium": chromium,
            "prometheus": lambda: which("promtool") and which("prometheus"),
        },
    }
    return [need for name in names for need, find in wanted[name].items() if not _is_there(find)]


def _apt_names(absent: Iterable[str]) -> list[str]:
    # An old release's default Java is too old, a new one has a later default and no 17.
    jre = _first_known("openjdk-17-jre-headless", "default-jre-headless")
    browser = _first_known("chromium-headless-shell", "chromium")
    names = {**APT_NAMES, "java": jre, "chromium": browser}
    return [word for name in absent for word in names[name].split()]


def _first_known(name: str, other: str) -> str:
    """Return the package of this name if the release has it, else the other."""
    policy = ["env", "LC_ALL=C", "apt-cache", "policy", name]
    shown = subprocess.run(policy, capture_output=True, text=True, check=False).stdout
    return name if re.search(r"Candidate: \d", shown) else other


@cache
def _as_root() -> list[str] | None:
    """Return the words before a command that needs root; None when we may not."""
    if os.geteuid() == 0:
        return []
    sudo = [shutil.which("sudo") or "false", "-n"]
    done = subprocess.run([*sudo, "true"], capture_output=True, check=False)
    return None if done.returncode else sudo


def can_install() -> bool:
    """Tell whether there is an apt-get that we may use."""
    return shutil.which("apt-get") is not None and _as_root() is not None


def line_to_type(absent: Iterable[str]) -> str:
    """Return the one line that makes everything absent present."""
    absent = list(absent)
    if "docker" in absent or not shutil.which("apt-get"):
        is_here = shutil.which("docker")
        return "sudo systemctl start docker && docker compose version" if is_here else DOCKER
    line = f"apt-get update && apt-get install -y {' '.join(_apt_names(absent))}"
    return f"sudo sh -c '{line}'" if shutil.which("sudo") else f"su -c '{line}'"


def install(absent: Iterable[str]) -> None:
    """Install through apt-get; one at a time, as two would only fight for its lock."""
    apt = [*(_as_root() or []), "env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1"]
    apt += ["apt-get", "-y", "-qq", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300"]
    with locked(cache_folder() / "packages.lock"):
        run_quietly([*apt, "update"])  # only then is known which packages there are
        names = _apt_names(absent)
        print(f"installing {' '.join(names)} with apt-get", flush=True)
        run_quietly([*apt, "install", *names])


def run_quietly(command: list[str], env: Mapping[str, str] | None = None) -> str:
    """Run a program whose many words only matter when it fails; raises `ServiceError`."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, check=False
    )
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise ServiceError(f"{last}\nthis failed: {' '.join(command)}")
    return done.stdout
