"""Folders of jars from Maven Central, by a pom that lists them; a user's checkouts share them."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import packages
from state import ServiceError, locked


def fetched(pom: Path, into: Path, proof: str, what: str) -> Path:
    """Return `into`, a whole folder with a jar like `proof`, fetched by the first caller."""
    with locked(into.parent / "jars.lock"):
        if not into.is_dir():
            print(f"fetching {what} with Maven into {into}", file=sys.stderr, flush=True)
            with TemporaryDirectory(dir=into.parent) as name:
                _download(pom, Path(name) / "jars", proof).rename(into)
    return into


def _download(pom: Path, fresh: Path, proof: str) -> Path:
    """Return a whole folder: only such a one ever carries the final name."""
    command = [packages.maven(), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    fresh.mkdir()
    packages.run_quietly([*command, f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"])
    if not list(fresh.glob(proof)):
        raise ServiceError(f"Maven could not fetch what {pom} lists")
    return fresh
