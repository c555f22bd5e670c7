"""`make test-k8s`: builds the images, gives them to the cluster, runs the cluster's tests.

README.md has the variables. Where no cluster answers, it says so and ends with 0.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.deploy.cluster.images import SPARK, STORE, WORKER, build_images
from tests.support.checkout import ROOT, downloaded

HERE = Path(__file__).resolve().parent
DRAIN = HERE / "test_drain.py"
PARALLEL = ("-n", "4", "--dist", "loadfile")  # a test waits for the cluster more than it works


def main(words: Sequence[str]) -> int:
    near = shlex.split(os.environ.get("DUEBRIDGE_K8S_EXEC", ""))
    asked = [*near, f"{downloaded('helm')}/kubectl", "--request-timeout=5s", "get", "nodes"]
    if subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).returncode:
        sys.stdout.write("no cluster answers at KUBECONFIG: its tests are skipped\n")
        return 0
    if load := os.environ.get("DUEBRIDGE_K8S_LOAD"):
        load_images(load)
        built = {"IMAGE": WORKER, "STORE_IMAGE": STORE, "SPARK_IMAGE": SPARK}
        os.environ.update({f"DUEBRIDGE_K8S_{name}": tag for name, tag in built.items()})
    # installs what the services need, which cannot be had from inside every cluster's network
    subprocess.run([sys.executable, "deploy/local/services.py", "up"], cwd=ROOT, check=True)
    tests = [*near, sys.executable, "-m", "pytest", "-m", "cluster"]
    runs = [words] if words else [[str(HERE), f"--ignore={DRAIN}", *PARALLEL], [str(DRAIN)]]
    codes = [subprocess.run([*tests, *run], cwd=ROOT, check=False).returncode for run in runs]
    return next((code for code in codes if code), 0)


def load_images(command: str) -> None:
    folder = ROOT / ".services" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for tar in build_images(folder):
        loading = shlex.split(command.format(tar=shlex.quote(str(tar))))
        subprocess.run(loading, cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
