"""Folders of jars from Maven Central, by a pom that lists them; a user's checkouts share them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import packages
from state import ServiceError, locked


def fetched(pom: Path, into: Path, proof: str, what: str) -> Path:
    """Return `into`, a whole folder with a jar like `proof`, fetched by whoever comes first."""
    if not into.is_dir():
        with locked(into.parent / "jars.lock"):
            if not into.is_dir():
                _download(pom, into, proof, what)
    return into


def _download(pom: Path, into: Path, proof: str, what: str) -> None:
    print(f"fetching {what} with Maven into {into}", file=sys.stderr, flush=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{into.name}-", dir=into.parent))
    command = [packages.maven(), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0 or not list(fresh.glob(proof)):
            words = f"{done.stdout}{done.stderr}".strip()
            raise ServiceError(f"{words}\nMaven could not fetch what {pom} lists")
        fresh.chmod(0o755)
        # Only a whole folder ever carries the final name.
        fresh.rename(into)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
