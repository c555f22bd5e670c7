"""Other versions of duebridge: the released one in an environment of its own, and the next one."""

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

from tests.acceptance.site import Version
from tests.support.checkout import ROOT, copy_tree, environment, missing

PREVIOUS = "3abcf69"  # whoever releases names the commit of the release
PACKAGES = sysconfig.get_paths()["purelib"]
NEXT_LAYOUT = {
    "LAYOUT = 1\n": "LAYOUT = 2\n",
    "if data[:1] != bytes([LAYOUT]) or": "if not 1 <= data[0] <= LAYOUT or",
    r"local LAYOUT = '\1'": r"local LAYOUT = '\2'",
    "return record and string.sub(record, 1, 1) == LAYOUT and #record >= PREFIX_BYTES": (
        "return record and #record >= PREFIX_BYTES and string.byte(record) <= 2"
    ),
}


def previous() -> Version:
    """Return the version of the commit `PREVIOUS`; it is built once, and kept for later runs."""
    words = ["git", "cat-file", "-e", f"{PREVIOUS}^{{commit}}"]
    if subprocess.run(words, cwd=ROOT, capture_output=True).returncode:
        missing(f"the commit {PREVIOUS}", "fetch the whole history: git fetch --unshallow")
    name = f"duebridge-{PREVIOUS}-{sys.version_info.major}.{sys.version_info.minor}"
    home = Path(tempfile.gettempdir()) / name
    if not home.exists():
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
    return wheel


def _install(wheel: Path, home: Path) -> None:
    """Unpack a wheel into an environment that has our dependencies, and nothing else of ours."""
    words = [sys.executable, "-m", "venv", "--without-pip", str(home)]
    subprocess.run(words, check=True, capture_output=True)
    [packages] = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(packages)  # noqa: S202
    (packages / "dependencies.pth").write_text(f"{PACKAGES}\n")


def following(home: Path) -> Version:
    """Make the next version: it writes record layout 2, and reads layout 1 as well."""
    where = home / "following"
    copy_tree(where)
    for old, new in NEXT_LAYOUT.items():
        _change(where, old, new)
    return Version(sys.executable, environment(where)["PYTHONPATH"], where)


def _change(tree: Path, old: str, new: str) -> None:
    files = [each for part in ("bridge", "lua") for each in (tree / part).rglob("*record.*")]
    [found] = [each for each in files if each.is_file() and each.read_text().count(old) == 1]
    found.write_text(found.read_text().replace(old, new))
