"""Builds wheel and sdist from a commit, and states which: in-toto statement, SLSA provenance v1."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LOCK = "requirements.lock"
BUILD_TYPE = "urn:duebridge:build:hatchling:v1"
LOCAL = "urn:duebridge:builder:local"


@dataclass(frozen=True)
class Build:
    """Wheel and sdist of a commit, the digest of its lock file, and when each began and ended."""

    files: tuple[Path, ...]
    commit: str
    committed: datetime
    lock_sha256: str
    began: datetime
    ended: datetime


def build(commit: str, into: Path, scratch: Path) -> Build:
    """Build a commit as it is in git, whatever the checkout holds; again gives the same bytes.

    Raise CalledProcessError where git or hatchling fails.
    """
    began = datetime.now(UTC)
    sha, at = git("show", "--no-patch", "--format=%H %ct", f"{commit}^{{commit}}").decode().split()
    with tarfile.open(fileobj=io.BytesIO(git("archive", sha))) as source:
        source.extractall(scratch, filter="data")
    words = [sys.executable, "-m", "hatchling", "build", "-d", str(into.resolve())]
    subprocess.run(
        words,
        cwd=scratch,
        env=os.environ | {"SOURCE_DATE_EPOCH": at},
        capture_output=True,
        check=True,
    )
    files = tuple(sorted(into.glob("duebridge-*.whl")) + sorted(into.glob("duebridge-*.tar.gz")))
    committed = datetime.fromtimestamp(int(at), UTC)
    return Build(files, sha, committed, sha256(scratch / LOCK), began, datetime.now(UTC))


def statement(made: Build, beside: Sequence[Path]) -> dict[str, Any]:
    """Return the statement about a build, unsigned; `beside` are files that belong to it.

    `DUEBRIDGE_BUILDER` and `DUEBRIDGE_BUILD` name the builder and the run, as URIs.
    """
    run = {"startedOn": instant(made.began), "finishedOn": instant(made.ended)}
    if "DUEBRIDGE_BUILD" in os.environ:
        run["invocationId"] = os.environ["DUEBRIDGE_BUILD"]
    source = {"name": "source", "digest": {"gitCommit": made.commit}}
    lock = {"name": LOCK, "digest": {"sha256": made.lock_sha256}}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [described(file) for file in made.files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"commit": made.commit},
                "internalParameters": {"python": ".".join(map(str, sys.version_info[:3]))},
                "resolvedDependencies": [source, lock],
            },
            "runDetails": {
                "builder": {"id": os.environ.get("DUEBRIDGE_BUILDER", LOCAL)},
                "metadata": run,
                "byproducts": [described(file) for file in beside],
            },
        },
    }


def described(file: Path) -> dict[str, Any]:
    """Return a file as in-toto describes one."""
    return {"name": file.name, "digest": {"sha256": sha256(file)}}


def sha256(file: Path) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def instant(when: datetime) -> str:
    """Return an instant as SLSA writes it."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def git(*words: str) -> bytes:
    """Return what git prints in this checkout."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout
