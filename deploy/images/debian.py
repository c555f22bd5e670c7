"""Debian packages as a directory: what is below an image's own layers.

The worker's are unpacked and never installed, so that nothing of them runs, as distroless images
are made: a package's files, its copyright, and its entry in var/lib/dpkg/status.d, where scanners
look. Java and a shell have to be installed: Spark's are.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SUITE = "bookworm"
PACKAGES = {
    "worker": ("base-files", "ca-certificates", "python3.11"),
    "spark": ("ca-certificates", "openjdk-17-jre-headless", "procps", "python3.11", "tini"),
}
# What the worker's packages want for being installed, which they never are.
UNUSED = {
    "debconf",
    "dpkg",
    "libacl1",
    "libattr1",
    "libmd0",
    "libpcre2-8-0",
    "libselinux1",
    "libzstd1",
    "mawk",
    "openssl",
    "readline-common",
    "tar",
}
# Neither read by a program, nor wanted by a licence.
UNREAD = (
    "usr/share/[!cd]*",
    "usr/share/doc/*/[!c]*",
    "usr/share/doc/*/changelog*",
    "usr/lib/*/gconv",
    "usr/sbin/*",
)
UNINSTALLED = (
    "usr/share/man/*",
    "usr/share/locale/*",
    "usr/share/info/*",
    "usr/share/doc/*/[!c]*",
    "usr/share/doc/*/changelog*",
)
FOLDERS = {"tmp": 0o1777, "proc": 0o755, "dev": 0o755, "sys": 0o755, "run": 0o755}
NAMES = {"passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\n", "group": "root:x:0:\n"}


def fill(image: str, architecture: str, into: Path) -> None:
    """Fill a directory with the root file system below an image; raises `SystemExit`."""
    if image == "worker":
        unpack(architecture, into)
    else:
        install(image, architecture, into)


def install(image: str, architecture: str, into: Path) -> None:
    """Install an image's packages; their scripts run, so only for this machine's processor."""
    words = ["mmdebstrap", "--quiet", "--variant=essential", "--format=directory"]
    words += [f"--architectures={architecture}", f"--include={','.join(PACKAGES[image])}"]
    words += [f"--dpkgopt=path-exclude=/{each}" for each in UNINSTALLED]
    # Java's scripts make links to its pages, and fail where that is not possible.
    words += ['--essential-hook=mkdir -p "$1/usr/share/man/man1"']
    _run([*words, SUITE, str(into)])
    for each in ("dev", "var/cache", "var/lib/apt"):
        shutil.rmtree(into / each)
        (into / each).mkdir()


def unpack(architecture: str, into: Path) -> None:
    """Unpack the worker's packages, without what no program reads."""
    with tempfile.TemporaryDirectory() as place:
        for package in fetched(architecture, Path(place)):
            _unpack(package, into)
    for name, mode in FOLDERS.items():
        (into / name).mkdir(exist_ok=True)
        (into / name).chmod(mode)
    for name, text in NAMES.items():
        (into / "etc" / name).write_text(text, "utf-8")
    _trust(into)
    for path in (path for pattern in UNREAD for path in sorted(into.glob(pattern))):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(
            missing_ok=True
        )


def fetched(architecture: str, into: Path) -> list[Path]:
    """Download the packages and what they depend on, as apt chooses and checks them."""
    words = ["mmdebstrap", "--quiet", "--variant=extract", "--format=null"]
    words += [f"--architectures={architecture}", f"--include={','.join(PACKAGES['worker'])}"]
    words += [f"--extract-hook=copy-out /var/cache/apt/archives {into}", SUITE, "-"]
    _run(words)
    return sorted(into.rglob("*.deb"))


def _unpack(package: Path, root: Path) -> None:
    control = _run(["dpkg-deb", "--field", str(package)])
    name = control.partition("\n")[0].removeprefix("Package: ")
    if name in UNUSED:
        return
    listed = root / "var/lib/dpkg/status.d" / name
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_text(control, "utf-8")
    _run(["dpkg-deb", "--extract", str(package), str(root)])


def _trust(root: Path) -> None:
    """Make the one file of certificates, as the package's own script would."""
    found = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.write_bytes(b"".join(each.read_bytes() for each in found))


def _run(words: Sequence[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise SystemExit(f"{words[0]} is not installed; it is a package of Debian's") from None
    except subprocess.CalledProcessError as failed:
        raise SystemExit(f"{failed.stderr}this failed: {' '.join(words)}") from None
    return done.stdout
