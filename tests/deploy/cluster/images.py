"""The images that nodes are given: the workers', and for a trial that one with a Valkey in it."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.images import archive
from duebridge.store.embedded import server_program
from tests.conftest import ROOT

WORKER = "localhost/duebridge:test"
STORE = "localhost/duebridge-store:test"


def build_worker(out: Path) -> None:
    """Write the workers' image as it is released."""
    build = [sys.executable, "-m", "deploy.images.build", "worker", "--tag", WORKER, str(out)]
    subprocess.run(build, cwd=ROOT, check=True)


def build_store(worker: Path, out: Path) -> None:
    """Write an image whose valkey-server is that of the embedded store: a cluster may have no
    registry to have Valkey's own from."""
    with tempfile.TemporaryDirectory(dir=out.parent) as name:
        place = Path(name)
        config, layers = archive.read(worker, place)
        program = place / "root" / "usr" / "bin" / "valkey-server"
        program.parent.mkdir(parents=True)
        shutil.copy(server_program(), program)
        program.chmod(0o755)
        more = archive.packed(place / "root", place / "store.tar")
        archive.write(out, STORE, config, [*layers, more])
