"""`make test-k8s`: the cluster's tests, with the image that they need; says so where no cluster is.

KUBECONFIG            the cluster; the nodes run amd64
DUEBRIDGE_K8S_LOAD    gives an image to its nodes: "kind load image-archive {tar}"
DUEBRIDGE_K8S_IMAGE   or an image that they can pull: "registry.example/duebridge:1"
DUEBRIDGE_K8S_HOST    an address of this machine that pods reach, where services start
DUEBRIDGE_K8S_EXEC    what runs a command where the cluster is reachable, if that is not here
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import ROOT
from tests.deploy.cluster.images import STORE, WORKER, build_store, build_worker

HERE = Path(__file__).resolve().parent
SERVICES = [sys.executable, "deploy/local/services.py"]


def main(words: Sequence[str]) -> int:
    tools = [sys.executable, "deploy/local/helm_tools.py"]
    folder = subprocess.run(tools, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    near = shlex.split(os.environ.get("DUEBRIDGE_K8S_EXEC", ""))
    asked = [*near, f"{folder.strip()}/kubectl", "--request-timeout=5s", "get", "nodes"]
    if subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).returncode:
        sys.stdout.write("no cluster answers at KUBECONFIG: its tests are skipped\n")
        return 0
    if load := os.environ.get("DUEBRIDGE_K8S_LOAD"):
        load_images(load)
        os.environ.update(DUEBRIDGE_K8S_IMAGE=WORKER, DUEBRIDGE_K8S_STORE_IMAGE=STORE)
    # installs what the services need, which cannot be had from inside every cluster's network
    subprocess.run([*SERVICES, "up"], cwd=ROOT, check=True)
    tests = [sys.executable, "-m", "pytest", "-m", "cluster", *(words or [str(HERE)])]
    return subprocess.run([*near, *tests], cwd=ROOT, check=False).returncode


def load_images(command: str) -> None:
    folder = ROOT / ".services" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    worker, store = folder / "worker.tar", folder / "store.tar"
    build_worker(worker)
    build_store(worker, store)
    for tar in (worker, store):
        loading = shlex.split(command.format(tar=shlex.quote(str(tar))))
        subprocess.run(loading, cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
