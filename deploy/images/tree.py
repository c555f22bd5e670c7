"""The files that an image has beyond its Debian packages, as directories that become its layers.

`python -m deploy.images.tree worker --base / --wheel duebridge.whl --into /image`: in
/image/dependencies the locked packages, in /image/application the project. Nothing of them is run,
so an image for another kind of processor is made like any other.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from deploy.images.bytecode import compiled
from deploy.images.locked import Pin, of_image
from deploy.images.sbom import bill

HOME = Path("opt/duebridge")
SITE = HOME / "lib/python3.11/site-packages"
STDLIB = Path("usr/lib/python3.11")
MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
# Debian 12 has Python 3.11.2 and glibc 2.36: wheels for older ones run there too.
PYTHON = "3.11.2"
GLIBC_MINORS = (17, 24, 26, 27, 28, 31, 34, 35, 36)
# Published without a wheel; it is Python, whatever the processor.
SOURCE_ONLY = "pyspark"
VENV = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n"
SHEBANG = "#!/opt/duebridge/bin/python\n"
COMMAND = f"""\
{SHEBANG}import sys

from duebridge.cli import main

sys.exit(main())
"""
ENTRYPOINT = Path(__file__).with_name("spark_entrypoint.py")
NAMES = {
    "passwd": "duebridge:x:10001:10001:duebridge:/tmp:/usr/sbin/nologin\n",
    "group": "duebridge:x:10001:\n",
}
# What no program of ours reads: sources of extensions, type stubs, the tests of packages, the
# second of zstandard's two libraries, which is PyPy's; and lists of files that would no longer be
# true, with the place of the build in them. Of Spark all jars stay.
UNREAD = (
    "**/*.pyi",
    "**/*.c",
    "**/*.h",
    "**/tests",
    "**/kafkatest",
    "zstandard/*_cffi*",
    "*.dist-info/RECORD",
    "*.dist-info/direct_url.json",
    "pyspark/examples",
    "pyarrow/include",
)


class Wanted(NamedTuple):
    """Which image, for which processor."""

    image: str
    platform: str


def requirements(wanted: Wanted, found: list[Pin]) -> str:
    """Return what pip is to install there: markers decided for the image, not for this machine."""
    there = {
        "python_version": PYTHON.rpartition(".")[0],
        "python_full_version": PYTHON,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": MACHINES[wanted.platform],
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "extra": "",
    }
    lines = []
    for pin in found:
        asked = Requirement(pin.requirement)
        if asked.marker is None or asked.marker.evaluate(there):
            lines.append(str(pin._replace(requirement=f"{asked.name}{asked.specifier}")))
    return "\n".join(lines) + "\n"


def install(wanted: Wanted, into: Path, *what: str) -> None:
    """Let pip put wheels into a directory as Debian's Python would have them on that processor."""
    machine = MACHINES[wanted.platform]
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    kinds = [f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS]
    kinds += [f"--platform=manylinux2014_{machine}", f"--python-version={PYTHON}"]
    only = ["--no-deps", "--only-binary=:all:", f"--no-binary={SOURCE_ONLY}", "--no-compile"]
    words = [*pip, "install", *kinds, *only, f"--target={into}", *what]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


def strip(site: Path) -> None:
    """Remove what no program of ours reads, and pip's scripts for another Python."""
    for pattern in UNREAD:
        for path in sorted(site.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    shutil.rmtree(site / "bin", ignore_errors=True)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file of the image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(mode)


def dependencies(wanted: Wanted, below: Path, into: Path, jars: Sequence[Path] = ()) -> None:
    """Fill a directory with the locked packages, and with bytecode for them and Python's own.

    `below` has the files of all layers below this one; `jars` are given to Spark.
    """
    listed = into / "requirements.txt"
    listed.write_text(requirements(wanted, of_image(wanted.image)), "utf-8")
    install(wanted, into / SITE, "--require-hashes", f"--requirement={listed}")
    listed.unlink()
    strip(into / SITE)
    for jar in jars:
        shutil.copy(jar, into / SITE / "pyspark/jars")
    write(into / HOME / "pyvenv.cfg", VENV)
    (into / HOME / "bin").mkdir()
    (into / HOME / "bin/python").symlink_to("/usr/bin/python3.11")
    compiled(into, [SITE], into / HOME)
    compiled(below, [STDLIB], into / HOME)


def application(wanted: Wanted, below: Path, wheel: Path, into: Path) -> None:
    """Fill a directory with the project, its command, its user, and the bill of materials."""
    install(wanted, into / SITE, str(wheel))
    strip(into / SITE)
    write(into / HOME / "bin/duebridge", COMMAND, 0o755)
    if wanted.image == "spark":
        write(into / HOME / "bin/spark-entrypoint", f"{SHEBANG}{ENTRYPOINT.read_text()}", 0o755)
    for name, line in NAMES.items():
        write(into / "etc" / name, (below / "etc" / name).read_text("utf-8") + line)
    (into / "etc/duebridge").mkdir()
    compiled(into, [SITE], into / HOME)
    version = wheel.name.split("-")[1]
    told = bill(f"duebridge-{wanted.image}", version, [below, into], SITE)
    write(into / HOME / "duebridge.cdx.json", told)


def main() -> None:
    """Make the directories."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", choices=("worker", "spark"))
    parser.add_argument("--platform", choices=tuple(MACHINES), default="linux/amd64")
    parser.add_argument("--base", type=Path, required=True, help="the files of the image below")
    parser.add_argument("--wheel", type=Path, required=True, help="the project")
    parser.add_argument("--jars", type=Path, help="a directory of what Spark is given")
    parser.add_argument("--into", type=Path, required=True)
    given = parser.parse_args()
    wanted = Wanted(given.image, given.platform)
    for name in ("dependencies", "application"):
        (given.into / name).mkdir(parents=True)
    jars = sorted(given.jars.glob("*.jar")) if given.jars else []
    dependencies(wanted, given.base, given.into / "dependencies", jars)
    shutil.copytree(given.into / "dependencies", given.base, symlinks=True, dirs_exist_ok=True)
    application(wanted, given.base, given.wheel, given.into / "application")


if __name__ == "__main__":
    main()
