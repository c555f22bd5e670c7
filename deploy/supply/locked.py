"""What a lock file pins, and what the installed packages say of themselves."""

import re
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

PIN = re.compile(r"^([a-z0-9][a-z0-9.-]*)==(\S+)(?: ; (.*?))? \\\n((?: +--hash=\S+.*\n)+)", re.M)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Pin:
    """A package of a lock file; `marker` is empty where every platform needs it."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    @property
    def title(self) -> str:
        """`name==version`."""
        return f"{self.name}=={self.version}"


def read_pins(lock: Path) -> tuple[Pin, ...]:
    """Return every pin of a lock file; raise ValueError where a line is not understood.

    A name may have several, each with a marker of its own.
    """
    text = lock.read_text()
    found = tuple(
        Pin(name, version, marker, tuple(HASH.findall(hashes)))
        for name, version, marker, hashes in PIN.findall(text)
    )
    if not found or len(found) != len(re.findall("==.*\\\\$", text, re.M)):
        raise ValueError(f"{lock}: not every pin has a version and hashes")
    return found


def installed(pin: Pin) -> Distribution | None:
    """Return the installed package, or None unless it is of the pinned version."""
    try:
        found = distribution(pin.name)
    except PackageNotFoundError:
        return None
    return found if found.version == pin.version else None
