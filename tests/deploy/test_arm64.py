"""The arm64 images: every package that they lock is to be had for that processor.

No test builds them. The recipe is the amd64 one, so what can differ is what pip finds: asked here
of the index, hash by hash, as Debian 12 on arm64 would. One that is published as source alone has
to be named, since its build would need a compiler that no image has.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.supply.locked import read_pins
from tests.support.checkout import ROOT

IMAGES = ROOT / "deploy" / "images"
PURE_SOURCES = {"worker": set(), "spark": {"pyspark"}, "build": set[str]()}  # Python and jars alone
GLIBC = 36  # Debian 12's, and all before it
PLATFORMS = [f"manylinux_2_{minor}_aarch64" for minor in range(17, GLIBC + 1)]
PLATFORMS += ["manylinux2014_aarch64", "linux_aarch64"]


def wheels_only(lock: Path, sources: set[str]) -> str:
    """Return a lock file without those that are no wheels."""
    lines, keep = [], True
    for line in lock.read_text("utf-8").splitlines():
        if not line.startswith((" ", "#")):
            keep = line.partition("==")[0] not in sources
        lines.append(line if keep else "")
    return "\n".join(lines)


@pytest.mark.long
@pytest.mark.parametrize("image", PURE_SOURCES)
def test_every_package_of_an_image_has_a_wheel_of_its_hash_for_arm64(
    tmp_path: Path, image: str
) -> None:
    lock, sources = IMAGES / f"{image}.lock", PURE_SOURCES[image]
    asked = tmp_path / "asked.lock"
    asked.write_text(wheels_only(lock, sources), "utf-8")
    words = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    words += ["--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:"]
    words += [
        "--python-version=3.11",
        "--implementation=cp",
        *map("--platform={}".format, PLATFORMS),
    ]
    words += [f"--target={tmp_path}", "--require-hashes", "--report=-", f"--requirement={asked}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {each["metadata"]["name"].lower() for each in json.loads(done.stdout)["install"]}
    # of a marker for another system or another Python pip takes none
    wanted = {pin.name for pin in read_pins(lock) if not pin.marker} - sources
    assert wanted <= {name.replace("_", "-").replace(".", "-") for name in found}
