"""The arm64 images: their packages are to be had for that processor, and a worker runs of them.

No test builds them. The recipe is the amd64 one, so what can differ is what pip finds: asked here
of the index, hash by hash, as Debian 12 on arm64 would. One that is published as source alone has
to be named, since its build would need a compiler that no image has. What the worker's image is
made of then runs under an emulator, with Debian's Python: pip, every C extension, a delivery.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pip
import pytest

from deploy.supply.locked import read_pins
from duebridge import Envelope, Producer
from tests.deploy.supply.release import VERSION
from tests.support.checkout import ROOT, downloaded
from tests.support.servers import redis_server, wait_until

IMAGES = ROOT / "deploy" / "images"
PURE_SOURCES = {"worker": set(), "spark": {"pyspark"}, "build": set[str]()}  # Python and jars alone
GLIBC = 36  # Debian 12's, and all before it
PLATFORMS = [f"manylinux_2_{minor}_aarch64" for minor in range(17, GLIBC + 1)]
PLATFORMS += ["manylinux2014_aarch64", "linux_aarch64"]


def wheels_only(lock: Path, sources: set[str]) -> str:
    """Return a lock file without those that are no wheels."""
    lines, keep = [], True
    for line in lock.read_text("utf-8").splitlines():
        if not line.startswith((" ", "#")):
            keep = line.partition("==")[0] not in sources
        lines.append(line if keep else "")
    return "\n".join(lines)


@pytest.mark.long
@pytest.mark.parametrize("image", PURE_SOURCES)
def test_every_package_of_an_image_has_a_wheel_of_its_hash_for_arm64(
    tmp_path: Path, image: str
) -> None:
    lock, sources = IMAGES / f"{image}.lock", PURE_SOURCES[image]
    asked = tmp_path / "asked.lock"
    asked.write_text(wheels_only(lock, sources), "utf-8")
    words = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    words += ["--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:"]
    words += [
        "--python-version=3.11",
        "--implementation=cp",
        *map("--platform={}".format, PLATFORMS),
    ]
    words += [f"--target={tmp_path}", "--require-hashes", "--report=-", f"--requirement={asked}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {each["metadata"]["name"].lower() for each in json.loads(done.stdout)["install"]}
    # of a marker for another system or another Python pip takes none
    wanted = {pin.name for pin in read_pins(lock) if not pin.marker} - sources
    assert wanted <= {name.replace("_", "-").replace(".", "-") for name in found}


CONFIG = """\
version: 1
store: {{url: "redis://127.0.0.1:{port}/0", allow_unfit: [persistence]}}
brokers:
  here: {{type: memory}}
  there: {{type: kafka, client: librdkafka, bootstrap_servers: ["kafka:9092"]}}
routes: {{reminders: {{target: {{broker: here, topic: reminders}}}}}}
"""
OTHER_BACKENDS = {"zstandard._cffi"}  # needs cffi, which no image has
ENDS_WITHIN_S = 300.0


class Emulated:
    """Debian's Python for arm64 with a folder of packages."""

    def __init__(self, packages: Path) -> None:
        home = Path(downloaded("arm64"))
        python = home / "root" / "usr" / "bin" / "python3.11"
        self._python = [f"{home}/qemu", "-L", f"{home}/root", str(python)]
        self._env = {**os.environ, "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
        self.packages = packages

    def run(self, *words: str) -> str:
        """Return what Python prints for these words."""
        ways = {"env": self._env, "timeout": ENDS_WITHIN_S}
        done = subprocess.run([*self._python, *words], capture_output=True, text=True, **ways)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Give a process of these words, killed where it does not end."""
        with subprocess.Popen([*self._python, *words], env=self._env) as process:
            yield process
            process.kill()


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """Install what the image installs, by pip on that processor."""
    home = tmp_path_factory.mktemp("arm64")
    emulated = Emulated(home / "packages")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    install = [f"{Path(pip.__file__).parent}/__main__.py", "install", "--quiet", "--no-deps"]
    install += ["--only-binary=:all:", "--no-compile", f"--target={emulated.packages}"]
    emulated.run(*install, "--require-hashes", f"--requirement={IMAGES}/worker.lock")
    emulated.run(*install, *map(str, home.glob("*.whl")))
    return emulated


@pytest.mark.release
@pytest.mark.timeout(900)
def test_worker_image_of_arm64_has_extensions_that_load(arm64: Emulated) -> None:
    files = [file.relative_to(arm64.packages) for file in arm64.packages.rglob("*.so")]
    modules = {str(file).partition(".")[0].replace("/", ".") for file in files}
    assert {"hiredis.hiredis", "confluent_kafka.cimpl"} <= modules
    imports = ", ".join(modules - OTHER_BACKENDS)
    shown = arm64.run("-c", f"import platform, {imports}; print(platform.machine())")
    assert shown == "aarch64\n"
    assert arm64.run("-m", "duebridge", "--version") == f"{VERSION}\n"


@pytest.mark.release
@pytest.mark.timeout(900)
def test_worker_on_arm64_delivers_and_ends_by_itself(arm64: Emulated, tmp_path: Path) -> None:
    with redis_server(tmp_path) as port:
        file = tmp_path / "duebridge.yaml"
        file.write_text(CONFIG.format(port=port), "utf-8")
        words = ("-m", "duebridge", "--config", str(file))
        assert "ok" in arm64.run(*words, "config", "check")
        body = tmp_path / "body"
        body.write_bytes(b"compressible " * 1000)
        arm64.run(*words, "send", "reminders", "--file", str(body), "--delay=1ms", "--id=there")
        with Producer.from_config(file) as producer, arm64.running(*words, "run") as worker:
            receipt = producer.schedule_many(
                "reminders", [Envelope.new(b"x", delay="1ms", id="here")]
            )
            assert [each.status for each in receipt] == ["accepted"]

            def is_empty() -> bool:
                return not any(producer.get("reminders", each) for each in ("here", "there"))

            wait_until(is_empty, "the deliveries", ENDS_WITHIN_S)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(ENDS_WITHIN_S) == 0
        delivered = arm64.run(*words, "events", "reminders", "--output=json").splitlines()
        events = [json.loads(each) for each in delivered]
        ids = {each["id"] for each in events if each["kind"] == "delivered"}
        assert ids == {"here", "there"}
