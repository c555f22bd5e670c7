"""Where a checkout keeps its services: folder, lock, ports and services.json."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Another one only where those who must reach it are elsewhere, such as the pods of a test cluster.
HOST = os.environ.get("DUEBRIDGE_SERVICES_HOST", "127.0.0.1")
# Below the range the kernel hands to outgoing connections, so that a kept port stays free.
FIRST_PORT, BLOCKS, BLOCK = 20000, 1200, 10
PORT_NAMES = ("redis", "rabbitmq", "rabbitmq_dist", "epmd", "kafka", "kafka_controller")


class ServiceError(Exception):
    """Something the user has to read; the message is printed as it is."""


@dataclass(frozen=True)
class Place:
    """One checkout: everything that its services write lies under `home`."""

    root: Path

    @property
    def home(self) -> Path:
        """Return the folder of everything the services write."""
        return self.root / ".services"

    @property
    def tag(self) -> str:
        """Return a short name of this checkout, for node names, ports and containers."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:8]

    def data(self, name: str) -> Path:
        """Return a service's own folder."""
        folder = self.home / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def log(self, name: str) -> Path:
        """Return the file for a service's output."""
        folder = self.home / "log"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.log"


@dataclass(frozen=True)
class Running:
    """A process by pid and start time: the pair is never given out twice."""

    name: str
    pid: int
    start_time: str


@dataclass(frozen=True)
class Service:
    """One entry of services.json."""

    name: str
    host: str
    port: int
    log: str
    data: str
    engine: str = "native"
    started_by_us: bool = True
    process: Running | None = None
    helpers: tuple[Running, ...] = field(default=())

    @property
    def address(self) -> str:
        """Return where clients find it."""
        return next(iter(address(self.name, self.host, self.port).values()))

    def to_json(self) -> dict[str, Any]:
        """Return the entry as it stands in services.json."""
        entry: dict[str, Any] = {**address(self.name, self.host, self.port)}
        entry.update(host=self.host, port=self.port, log=self.log, data=self.data)
        entry.update({"with": self.engine, "started_by_us": self.started_by_us})
        entry["pid"] = self.process.pid if self.process else None
        entry["start_time"] = self.process.start_time if self.process else None
        entry["helpers"] = [vars(helper) for helper in self.helpers]
        return entry

    @classmethod
    def from_json(cls, name: str, entry: dict[str, Any]) -> Service:
        """Read an entry; one written by hand needs no more than its port."""
        pid = entry.get("pid")
        return cls(
            name=name,
            host=entry.get("host", HOST),
            port=entry["port"],
            log=entry.get("log", ""),
            data=entry.get("data", ""),
            engine=entry.get("with", "native"),
            started_by_us=entry.get("started_by_us", False),
            process=Running(name, pid, str(entry.get("start_time"))) if pid else None,
            helpers=tuple(Running(**helper) for helper in entry.get("helpers", [])),
        )


def cache_folder() -> Path:
    """Return what all checkouts of a user share."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "duebridge"


def address(name: str, host: str, port: int) -> dict[str, str]:
    """Return the key and the value under which clients find a service."""
    if name == "redis":
        return {"url": f"redis://{host}:{port}/0"}
    if name == "rabbitmq":
        return {"url": f"amqp://guest:guest@{host}:{port}/%2F"}
    return {"bootstrap": f"{host}:{port}"}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file lock `path`; whoever comes second waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as broken:
        raise ServiceError(f"{path} is not JSON ({broken}); delete it and try again") from None
    return found if isinstance(found, dict) else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    """Replace the file in one step, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    fresh.replace(path)


def load(place: Place) -> dict[str, Service]:
    """Read services.json."""
    entries = _read(place.home / "services.json")
    try:
        return {name: Service.from_json(name, entry) for name, entry in entries.items()}
    except (KeyError, TypeError, AttributeError) as unknown:
        where = place.home / "services.json"
        raise ServiceError(f"{where} has an entry without what it needs ({unknown})") from None


def save(place: Place, services: dict[str, Service]) -> None:
    """Write services.json."""
    entries = {name: service.to_json() for name, service in services.items()}
    _write(place.home / "services.json", entries)


def is_free(port: int) -> bool:
    """Whether nobody listens on the port (REUSEADDR: closed connections do not count)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    with socket.socket() as caller:
        caller.settimeout(1.0)
        return caller.connect_ex((HOST, port)) != 0


def _candidates(place: Place, name: str) -> Iterator[int]:
    """Yield this checkout's port for `name`, then the same one of the blocks that follow."""
    first = int(place.tag, 16) % BLOCKS
    for step in range(BLOCKS):
        yield FIRST_PORT + (first + step) % BLOCKS * BLOCK + PORT_NAMES.index(name)


def kept_ports(place: Place) -> dict[str, int]:
    """Return the ports this checkout had last time."""
    return _read(place.home / "ports.json")


def ports(place: Place, names: Iterable[str]) -> dict[str, int]:
    """Find a free port for each name: the one kept unless somebody else took it."""
    kept = kept_ports(place)
    for name in names:
        if name not in kept or not is_free(kept[name]):
            kept[name] = next(port for port in _candidates(place, name) if is_free(port))
    _write(place.home / "ports.json", kept)
    return kept
