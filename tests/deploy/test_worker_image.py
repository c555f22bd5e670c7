"""The worker's image as a node runs it: another user, a read-only root, nothing but its files."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy.images.tree import HOME, SITE, Wanted

from tests.deploy.image import Image, said_mb, unpacked
from tests.store.servers import free_port, redis_server, wait_until

pytestmark = [pytest.mark.image, pytest.mark.timeout(600)]  # the first build fetches packages
WITHIN_S = 60.0
AARCH64 = 183
CONFIG = """\
version: 1
store: {{url: "redis://127.0.0.1:{port}/0"}}
brokers:
  here: {{type: memory}}
  fast: {{type: kafka, bootstrap_servers: ["127.0.0.1:1"], client: librdkafka}}
  pure: {{type: kafka, bootstrap_servers: ["127.0.0.1:1"]}}
  rabbit: {{type: rabbitmq, url: "amqp://127.0.0.1:1/"}}
routes:
  reminders: {{target: {{broker: here, topic: reminders}}}}
  fast: {{target: {{broker: fast, topic: reminders}}}}
  pure: {{target: {{broker: pure, topic: reminders}}}}
  rabbit: {{target: {{broker: rabbit, exchange: "", routing_key: reminders}}}}
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A directory with a configuration, whose store answers."""
    options = ("--appendonly", "yes", "--maxmemory-policy", "noeviction")
    with redis_server(tmp_path, *options) as port:
        (config := tmp_path / "config").mkdir()
        (config / "duebridge.yaml").write_text(CONFIG.format(port=port), "utf-8")
        yield config


def test_run_as_10001_on_a_read_only_root_delivers_and_drains(
    worker_image: Image, home: Path
) -> None:
    run = worker_image.run
    sent = run(home, "send", "reminders", "hello", "--delay", "0ms", "--id", "one")
    assert sent[0] == 0, sent
    assert run(home, "get", "reminders", "one")[0] == 0
    with worker_image.started(home, "run", DUEBRIDGE_HEALTH_PORT=str(free_port())) as worker:
        wait_until(
            lambda: run(home, "get", "reminders", "one")[0] == 1, "the delivery", within_s=WITHIN_S
        )
        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate(timeout=WITHIN_S)
    events = [json.loads(line)["event"] for line in err.decode().splitlines()]
    assert (worker.returncode, out, events[-1]) == (0, b"", "drained"), err.decode()


def test_doctor_in_the_image_speaks_to_every_kind_of_broker(
    worker_image: Image, home: Path
) -> None:
    code, shown = worker_image.run(home, "doctor")
    assert code == 4, shown
    for broker in ("fast", "pure", "rabbit"):
        assert f"brokers.{broker}: no " in shown


def test_image_has_no_shell_no_package_manager_and_nothing_to_write_to(
    worker_image: Image,
) -> None:
    programs = {
        path.name
        for folder in ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", str(HOME / "bin"))
        for path in (worker_image.root / folder).glob("*")
    }
    python = {"python", "python3.11", "pdb3.11", "pydoc3.11", "pygettext3.11"}
    assert programs == {"duebridge"} | python
    assert not (worker_image.root / SITE / "pip").exists()
    writable = {
        str(path.relative_to(worker_image.root))
        for path in worker_image.root.rglob("*")
        if not path.is_symlink() and path.stat().st_mode & 0o002
    }
    assert writable <= {"tmp", "var/tmp", "var/lock"}
    ours = [path for path in worker_image.root.rglob("*") if path.lstat().st_uid == 10001]
    assert ours == []


def test_bill_of_materials_lists_every_package_in_the_image(worker_image: Image) -> None:
    listed = dict(worker_image.bill())
    debian = (worker_image.root / "var/lib/dpkg/status.d").iterdir()
    assert set(listed) == {f"deb/debian/{path.name}" for path in debian} | worker_image.wheels()
    assert {"pypi/duebridge", "pypi/confluent-kafka", "deb/debian/libc6"} <= set(listed)
    assert all(listed.values())


def test_image_is_as_large_as_the_page_says(worker_image: Image) -> None:
    assert worker_image.size_mb() == pytest.approx(said_mb("worker"), rel=0.05)


def test_image_for_arm64_has_only_programs_for_it(tmp_path: Path) -> None:
    image = unpacked(Wanted("worker", "linux/arm64"), tmp_path)
    assert image.config["architecture"] == "arm64"
    machines = set()
    for path in image.root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                head = file.read(20)
            if head.startswith(b"\x7fELF"):
                machines.add(int.from_bytes(head[18:20], "little"))
    assert machines == {AARCH64}
