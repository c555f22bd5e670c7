"""The versions of duebridge that tests run beside each other: this checkout and the previous."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from tests.support.checkout import ROOT, missing

PREVIOUS, RELEASE = "51d4b3d7", "0.2.0"  # whoever releases names its commit
PACKAGES = sysconfig.get_paths()["purelib"]


class Version(NamedTuple):
    """A duebridge: the interpreter that has it, what is put before its path, and where it lies."""

    python: str
    path: str
    where: Path


CURRENT = Version(sys.executable, os.getenv("PYTHONPATH", ""), ROOT)


def previous() -> Version:
    """Return the version of the commit `PREVIOUS`; it is built once, and kept for later runs."""
    words = ["git", "cat-file", "-e", f"{PREVIOUS}^{{commit}}"]
    if subprocess.run(words, cwd=ROOT, capture_output=True).returncode:
        missing(f"the commit {PREVIOUS}", "fetch the whole history: git fetch --unshallow")
    name = f"duebridge-{PREVIOUS}-{sys.version_info.major}.{sys.version_info.minor}"
    home = ROOT / ".services" / name  # it refers to the dependencies of this checkout
    if not home.exists():
        home.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="duebridge-build-") as made:
            _install(_wheel(Path(made)), Path(made) / "env")
            shutil.move(Path(made) / "env", home)
    return Version(str(home / "bin" / "python"), "", home)


def _wheel(home: Path) -> Path:
    archive = ["git", "archive", "--format=tar", PREVIOUS]
    done = subprocess.run(archive, cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(fileobj=BytesIO(done.stdout)) as files:
        files.extractall(home / "code", filter="data")
    words = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    subprocess.run([*words, home], cwd=home / "code", check=True, capture_output=True)
    [wheel] = home.glob("*.whl")
    assert wheel.name.startswith(f"duebridge-{RELEASE}-"), f"{PREVIOUS} is {wheel.name}"
    return wheel


def _install(wheel: Path, home: Path) -> None:
    """Unpack a wheel into an environment that has our dependencies, and nothing else of ours."""
    words = [sys.executable, "-m", "venv", "--without-pip", str(home)]
    subprocess.run(words, check=True, capture_output=True)
    [packages] = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(packages)  # noqa: S202
    (packages / "dependencies.pth").write_text(f"{PACKAGES}\n")
