"""`make test-k8s`: builds the image, gives it to the cluster, runs the cluster's tests.

README.md has the variables. Where no cluster answers, it says so and ends with 0.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from duebridge.store.server.embedded import server_program
from tests.support.checkout import ROOT, downloaded

WORKER = "localhost/duebridge:test"
STORE = "localhost/duebridge-store:test"
TOOLS = Path(os.environ.get("DUEBRIDGE_K8S_TOOLS", ROOT.parent / "shared" / "k8s"))
EXTRAS = "http,kafka,librdkafka,otel,rabbitmq"
INSTALL = f"""\
python3 -m venv /opt/duebridge
/opt/duebridge/bin/pip install --no-index --find-links /wheels 'duebridge[{EXTRAS}]'
rm -r /wheels"""
ENVIRONMENT = (
    "PATH=/opt/duebridge/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE=1",
    "PYTHONFAULTHANDLER=1",
    "DUEBRIDGE_CONFIG=/etc/duebridge/duebridge.yaml",
    "DUEBRIDGE_HEALTH_PORT=8080",
)


def build_images(folder: Path) -> list[Path]:
    """Return the archives of both images; ends the program where nothing here builds one."""
    worker, store = folder / "worker.tar", folder / "store.tar"
    if (TOOLS / "build-image").exists():
        _build_with_tools(folder, worker, store)
    elif _has_docker():
        _build_with_docker(worker, store)
    else:
        sys.exit("no image can be built: start Docker, or set DUEBRIDGE_K8S_IMAGE")
    return [worker, store]


def _has_docker() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def _build_with_tools(folder: Path, worker: Path, store: Path) -> None:
    base = folder / "base.tar"
    if not base.exists():
        subprocess.run([TOOLS / "base-image", base], check=True)
    build = [TOOLS / "build-image", "--user", "10001:10001"]
    with tempfile.TemporaryDirectory() as wheels:
        collect_wheels(Path(wheels))
        more = [word for each in ENVIRONMENT for word in ("--env", each)]
        more += ["--entrypoint", "/opt/duebridge/bin/duebridge", "--cmd", "run"]
        wanted = ["--add", f"{wheels}:/wheels", "--run", INSTALL, "--tag", WORKER, worker]
        subprocess.run([*build, "--base", base, *more, *wanted], check=True)
    program = f"{server_program()}:/usr/bin/valkey-server"
    wanted = ["--add", program, "--run", "chmod 755 /usr/bin/valkey-server", "--tag", STORE, store]
    subprocess.run([*build, "--base", worker, *wanted], check=True)


def collect_wheels(into: Path) -> None:
    """Fill a folder with the wheel and the locked packages, for Debian's Python 3.11.2."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    subprocess.run(build, cwd=ROOT, check=True)
    locked = re.findall(r"^[\w.-]+==[^ ;]+", (ROOT / "requirements.lock").read_text(), re.M)
    (constraints := into / "constraints.txt").write_text("\n".join(locked))
    [wheel] = into.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    pip += ["--python-version=3.11.2", "--constraint", str(constraints), "--dest", str(into)]
    # redis needs async-timeout before Python 3.11.3 only: pip asks the Python that runs it
    subprocess.run([*pip, f"{wheel}[{EXTRAS}]", "async-timeout"], check=True)


def _build_with_docker(worker: Path, store: Path) -> None:
    build = ["docker", "build", "--tag"]
    recipe = ROOT / "deploy" / "images" / "worker.Dockerfile"
    subprocess.run([*build, WORKER, "--file", recipe, ROOT], check=True)
    with tempfile.TemporaryDirectory() as context:
        shutil.copy(server_program(), Path(context, "valkey-server"))
        copied = f"FROM {WORKER}\nCOPY --chmod=755 valkey-server /usr/bin/\n"
        Path(context, "Dockerfile").write_text(copied)
        subprocess.run([*build, STORE, context], check=True)
    for tag, tar in ((WORKER, worker), (STORE, store)):
        subprocess.run(["docker", "save", "--output", tar, tag], check=True)


HERE = Path(__file__).resolve().parent


def main(words: Sequence[str]) -> int:
    near = shlex.split(os.environ.get("DUEBRIDGE_K8S_EXEC", ""))
    asked = [*near, f"{downloaded('helm')}/kubectl", "--request-timeout=5s", "get", "nodes"]
    if subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).returncode:
        sys.stdout.write("no cluster answers at KUBECONFIG: its tests are skipped\n")
        return 0
    if load := os.environ.get("DUEBRIDGE_K8S_LOAD"):
        load_images(load)
        os.environ.update(DUEBRIDGE_K8S_IMAGE=WORKER, DUEBRIDGE_K8S_STORE_IMAGE=STORE)
    # installs what the services need, which cannot be had from inside every cluster's network
    subprocess.run([sys.executable, "deploy/local/services.py", "up"], cwd=ROOT, check=True)
    tests = [sys.executable, "-m", "pytest", "-m", "cluster", *(words or [str(HERE)])]
    return subprocess.run([*near, *tests], cwd=ROOT, check=False).returncode


def load_images(command: str) -> None:
    folder = ROOT / ".services" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for tar in build_images(folder):
        loading = shlex.split(command.format(tar=shlex.quote(str(tar))))
        subprocess.run(loading, cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
