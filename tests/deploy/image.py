"""An image that was built here, unpacked, and a way to run its command as Kubernetes would."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from deploy.images.build import build
from deploy.images.tree import HOME, SITE, Wanted

from deploy.images import archive
from tests.conftest import ROOT, missing

WITHIN_S = 240.0  # Spark takes its time
# A container's view: only the image's files, none of them writable, an empty /tmp, another user.
CONTAINER = """\
mount --bind "$ROOT" "$ROOT" && mount --bind "$CONFIG" "$ROOT/etc/duebridge"
mount -o remount,bind,ro "$ROOT" && mount -t tmpfs tmpfs "$ROOT/tmp"
mount -t proc proc "$ROOT/proc" && mount --rbind /dev "$ROOT/dev"
mount --bind "$HOSTS" "$ROOT/etc/hosts"
exec env -i $ENVIRONMENT "$(command -v chroot)" --userspec="$USER" --groups= "$ROOT" "$@"
"""


class Image(NamedTuple):
    """A built image: its settings, and its files as one directory."""

    config: dict[str, Any]
    root: Path

    @contextmanager
    def started(self, home: Path, *words: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the entry point with `home` as /etc/duebridge; the process ends with the block."""
        given = [*self.config["Env"], *(f"{name}={value}" for name, value in more.items())]
        outside = {
            "PATH": os.environ["PATH"],
            "ROOT": str(self.root),
            "CONFIG": str(home),
            "HOSTS": str(self.root.with_name("hosts")),
            "ENVIRONMENT": " ".join(given),
            "USER": self.config["User"],
        }
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", CONTAINER, "sh"]
        command += [*self.config["Entrypoint"], *words]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=outside, stdout=pipe, stderr=pipe)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def run(self, home: Path, *words: str, **more: str) -> tuple[int, str]:
        """Run to the end; return the exit code and all that was printed."""
        with self.started(home, *words, **more) as process:
            out, err = process.communicate(timeout=WITHIN_S)
            return process.returncode, (out + err).decode()

    def size_mb(self) -> float:
        """The archive's size, as a node loads it."""
        return self.root.with_name("image.tar").stat().st_size / 1e6

    def bill(self) -> list[tuple[str, str]]:
        """The bill of materials: package URLs and versions."""
        told = json.loads((self.root / HOME / "duebridge.cdx.json").read_text("utf-8"))
        urls = [unquote(each["purl"]).removeprefix("pkg:") for each in told["components"]]
        return [(name, version) for name, _, version in (each.partition("@") for each in urls)]

    def wheels(self) -> set[str]:
        """What Python finds installed, in the words of the bill."""
        found = distributions(path=[str(self.root / SITE)])
        return {f"pypi/{each.name.lower().replace('_', '-')}" for each in found}


def said_mb(image: str) -> float:
    """What the page says of an image's size."""
    page = (ROOT / "deploy" / "images" / "README.md").read_text("utf-8")
    found = re.search(rf"^\| `{image}` \| ([\d,]+) MB", page, re.MULTILINE)
    assert found, image
    return float(found[1].replace(",", ""))


def unpacked(wanted: Wanted, place: Path) -> Image:
    """Build an image, or take its layers from the cache, and unpack it."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        missing("mmdebstrap, or root", "apt-get install mmdebstrap, and run this as root")
    (root := place / "root").mkdir()
    (layers := place / "layers").mkdir()
    build(wanted, f"localhost/{wanted.image}:test", place / "image.tar")
    config, found = archive.read(place / "image.tar", layers)
    for each in found:
        with tarfile.open(each.path) as tar:
            tar.extractall(root, filter="tar")
    (place / "hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n", "utf-8")
    (root / "etc/hosts").touch()
    return Image(config["config"] | {"architecture": config["architecture"]}, root)
