"""Other versions of duebridge, each a directory to put first on the path.

The previous one is committed as `previous.tar.xz`, since a clone may have no history. It is made
of a commit by `python -m tests.day_two.versions COMMIT`; whoever releases makes it of the release.
The following one is made of today's code, with another record layout.
"""

import lzma
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.conftest import ROOT

PREVIOUS = Path(__file__).with_name("previous.tar.xz")
PACKAGES = ("bridge", "connectors", "lua")
NO_CACHES = shutil.ignore_patterns("__pycache__")
LUA_KNOWS_1 = "return record and string.sub(record, 1, 1) == LAYOUT and #record >= PREFIX_BYTES"
LUA_KNOWS_2 = "return record and #record >= PREFIX_BYTES and string.byte(record) <= 2"
READS_1 = "if data[:1] != bytes([LAYOUT]) or len(data) < _PREFIX.size:"
READS_2 = "if not 1 <= data[0] <= LAYOUT or len(data) < _PREFIX.size:"


def archive_of(commit: str) -> bytes:
    """Return the code of a commit, as a tar file that tells which."""
    words = ["git", "archive", "--format=tar", commit, *PACKAGES]
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True).stdout


def previous_commit() -> str:
    """Return the commit that the previous version is made of."""
    with tarfile.open(PREVIOUS) as archive:
        return archive.pax_headers["comment"]


def previous(home: Path) -> Path:
    """Unpack the previous version."""
    where = home / "previous"
    with tarfile.open(PREVIOUS) as archive:
        archive.extractall(where, filter="data")
    return where


def following(home: Path) -> Path:
    """Make the next version: it writes record layout 2, and reads layout 1 as well."""
    where = home / "following"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, where / package, ignore=NO_CACHES)
    record_py, record_lua = (
        where / "bridge/duebridge/store/record.py",
        where / "lua/shared/record.lua",
    )
    _change(record_py, "LAYOUT = 1\n", "LAYOUT = 2\n")
    _change(record_py, READS_1, READS_2)
    _change(record_lua, r"local LAYOUT = '\1'", r"local LAYOUT = '\2'")
    _change(record_lua, LUA_KNOWS_1, LUA_KNOWS_2)
    return where


def _change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name}: expected {old!r} once"
    path.write_text(text.replace(old, new))


if __name__ == "__main__":
    PREVIOUS.write_bytes(lzma.compress(archive_of(sys.argv[1]), preset=9 | lzma.PRESET_EXTREME))
    print(f"{PREVIOUS}: {previous_commit()}, {PREVIOUS.stat().st_size} bytes")  # noqa: T201
