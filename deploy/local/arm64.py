"""Debian's Python for arm64 and an emulator of that processor, unpacked into a folder.

apt-get works in folders of its own here: neither the machine's packages nor its lists change.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import packages
from state import ServiceError

RELEASE = "bookworm"  # the base of the images
PYTHON = ("python3.11-minimal", "libpython3.11-stdlib", "libstdc++6")
EMULATOR = ("qemu-user-static",)
QEMU = "usr/bin/qemu-aarch64-static"


def fill(into: Path) -> None:
    """Put both there: the emulator as `qemu`, the rest as `root`; raises `ServiceError`."""
    if f"VERSION_CODENAME={RELEASE}" not in Path("/etc/os-release").read_text("utf-8").split():
        raise ServiceError("Python for arm64 is fetched by the apt-get of Debian 12 alone")
    here = packages.run_quietly([packages.which("dpkg"), "--print-architecture"]).strip()
    with TemporaryDirectory(dir=into.parent) as name:
        emulator = Path(name) / "emulator"
        _unpack(EMULATOR, here, emulator)
        shutil.move(emulator / QEMU, into / "qemu")
    _unpack(PYTHON, "arm64", into / "root")


def _unpack(names: tuple[str, ...], architecture: str, into: Path) -> None:
    """Unpack packages and what they need, for a processor, as on a machine without any."""
    with TemporaryDirectory(dir=into.parent) as name:
        apt = _apt(Path(name), architecture)
        packages.run_quietly([*apt, "update"])
        packages.run_quietly([*apt, "install", "--yes", "--download-only", *names])
        for archive in sorted(Path(name, "cache", "archives").glob("*.deb")):
            packages.run_quietly(["dpkg-deb", "--extract", str(archive), str(into)])


def _apt(work: Path, architecture: str) -> list[str]:
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    options = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Dir::State": work / "state",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        "Debug::NoLocking": "true",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return [packages.which("apt-get"), *words]
