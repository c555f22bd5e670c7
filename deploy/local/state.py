"""Where a checkout keeps its services: folder, lock, ports and services.json."""

import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

# Another address only where clients are elsewhere, such as the pods of a test cluster.
HOST = os.environ.get("DUEBRIDGE_SERVICES_HOST", "127.0.0.1")
# Below the range the kernel hands to outgoing connections, so that a kept port stays free.
FIRST_PORT, BLOCKS, BLOCK = 20000, 1200, 10
PORT_NAMES = ("redis", "rabbitmq", "rabbitmq_dist", "epmd", "kafka", "kafka_controller")
ADDRESSES = {
    "redis": ("url", "redis://{}:{}/0"),
    "rabbitmq": ("url", "amqp://guest:guest@{}:{}/%2F"),
    "kafka": ("bootstrap", "{}:{}"),
}


class ServiceError(Exception):
    """Something the user has to read; the message is printed as it is."""


@dataclass(frozen=True)
class Place:
    """One checkout: everything that its services write lies under `home`."""

    root: Path

    @property
    def home(self) -> Path:
        """The folder of everything the services write."""
        return self.root / ".services"

    @property
    def tag(self) -> str:
        """A short name of this checkout, for node names, ports and containers."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:8]

    def data(self, name: str) -> Path:
        """Return a service's own folder."""
        (folder := self.home / name).mkdir(parents=True, exist_ok=True)
        return folder


@dataclass(frozen=True)
class Service:
    """One entry of services.json; `pid` and `start_time` together name one process for good."""

    name: str
    port: int
    host: str = HOST
    log: str = ""
    data: str = ""
    engine: str = "native"
    started_by_us: bool = True
    # Who alone asked for it (`up --owner`), and so may stop it with `down --owner`.
    owner: str = ""
    pid: int = 0
    start_time: str = ""

    @property
    def address(self) -> str:
        """Where clients find it."""
        return ADDRESSES[self.name][1].format(self.host, self.port)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as it stands in services.json."""
        return {ADDRESSES[self.name][0]: self.address, **vars(self)}

    @classmethod
    def from_json(cls, name: str, entry: dict[str, Any]) -> Self:
        """Read an entry; one written by hand needs no more than its port."""
        known = {each.name for each in fields(cls)} & set(entry)
        return cls(**{"name": name, **{key: entry[key] for key in known}})


def cache_folder() -> Path:
    """Return the folder that all checkouts of a user share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "duebridge"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file lock; a second caller waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    """Replace the file in one step, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    fresh.replace(path)


def load(place: Place) -> dict[str, Service]:
    """Read services.json."""
    where = place.home / "services.json"
    try:
        return {name: Service.from_json(name, entry) for name, entry in _read(where).items()}
    except (TypeError, ValueError) as broken:
        raise ServiceError(f"{where} is broken ({broken}); fix or delete it") from None


def save(place: Place, services: dict[str, Service]) -> None:
    """Write services.json."""
    entries = {name: service.to_json() for name, service in services.items()}
    _write(place.home / "services.json", entries)


def is_free(port: int) -> bool:
    """Whether nobody listens on the port."""
    with socket.socket() as caller:
        caller.settimeout(1.0)
        return caller.connect_ex((HOST, port)) != 0


def kept_ports(place: Place) -> dict[str, int]:
    """Return the ports this checkout had last time."""
    return _read(place.home / "ports.json")


def ports(place: Place, names: Iterable[str]) -> dict[str, int]:
    """Find a free port for each name: the kept one, else that of this checkout's block or later."""
    kept, first = kept_ports(place), int(place.tag, 16) % BLOCKS
    blocks = [FIRST_PORT + (first + step) % BLOCKS * BLOCK for step in range(BLOCKS)]
    for name in names:
        if name not in kept or not is_free(kept[name]):
            offset = PORT_NAMES.index(name)
            kept[name] = next(block + offset for block in blocks if is_free(block + offset))
    _write(place.home / "ports.json", kept)
    return kept
