"""The program that brings up real Redis, RabbitMQ and Kafka for a checkout."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from uuid import UUID

import pytest

LOCAL = Path(__file__).resolve().parents[2] / "deploy" / "local"
Load = Callable[[str], ModuleType]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import the program's modules, which find each other in its folder, and forget them."""
    monkeypatch.syspath_prepend(str(LOCAL))
    yield importlib.import_module
    for file in LOCAL.glob("*.py"):
        sys.modules.pop(file.stem, None)


@contextlib.contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        yield server


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}", "utf-8")
    path.chmod(0o755)
    return path


def test_load_after_save_returns_the_same_services(module: Load, tmp_path: Path) -> None:
    state = module("state")
    place, common = state.Place(tmp_path), {"host": "127.0.0.1", "port": 7, "log": "l", "data": "d"}
    services = {
        "redis": state.Service("redis", **common, engine="docker"),
        "rabbitmq": state.Service("rabbitmq", **common, pid=12, start_time="boot:34"),
        "kafka": state.Service("kafka", **common, started_by_us=False),
    }
    state.save(place, services)
    assert state.load(place) == services
    written = json.loads((place.home / "services.json").read_text("utf-8"))
    assert written["redis"]["url"] == "redis://127.0.0.1:7/0"
    assert written["rabbitmq"]["url"] == "amqp://guest:guest@127.0.0.1:7/%2F"
    assert written["kafka"]["bootstrap"] == "127.0.0.1:7"


@pytest.mark.parametrize("text", ["{", '{"redis": {}}', '{"redis": 5}'])
def test_load_unreadable_state_names_the_file(module: Load, tmp_path: Path, text: str) -> None:
    state = module("state")
    (tmp_path / ".services").mkdir()
    (file := tmp_path / ".services" / "services.json").write_text(text, "utf-8")
    with pytest.raises(state.ServiceError, match=re.escape(str(file))):
        state.load(state.Place(tmp_path))


def test_end_recycled_pid_leaves_the_process_alone(module: Load) -> None:
    state, process = module("state"), module("process")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        process.end([state.Service("redis", 7, pid=other.pid, start_time="of an earlier process")])
        assert other.poll() is None


def test_end_deaf_process_kills_it(module: Load, tmp_path: Path) -> None:
    process, place = module("process"), module("state").Place(tmp_path)
    deaf = (
        "import signal as s; s.signal(s.SIGTERM, s.SIG_IGN); print('deaf', flush=True); s.pause()"
    )
    running = process.spawn(place, "deaf", 7, [sys.executable, "-c", deaf])
    assert process.wait_until(lambda: "deaf" in place.log("deaf").read_text("utf-8"), 30)
    process.end([running], seconds=0.2)
    assert not process.is_alive(running)


def test_start_time_of_zombie_is_nothing(module: Load) -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert module("process").start_time(child.pid) == ""


def test_ports_of_two_checkouts_with_one_wish_stay_and_differ(
    module: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = module("state")
    one, two = state.Place(tmp_path / "one"), state.Place(tmp_path / "two")
    assert one.tag != two.tag
    monkeypatch.setattr(state.Place, "tag", "0000c0de")
    kept = state.ports(one, state.PORT_NAMES)
    assert len(set(kept.values())) == len(state.PORT_NAMES)
    assert state.ports(one, state.PORT_NAMES) == kept
    with listening(kept["redis"]):
        assert state.ports(two, ["redis"])["redis"] != kept["redis"]


@pytest.mark.parametrize(
    ("name", "reply", "expected"),
    [
        ("redis", b"+PONG\r\n", True),
        ("redis", b"-LOADING Redis is loading\r\n", False),
        ("rabbitmq", b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x0a", True),
        ("rabbitmq", b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x32", False),
        ("kafka", b"\x00\x00\x00\x06\x00\x00\x00\x07\x00\x00", True),
        ("kafka", b"\x00\x00\x00\x06\x00\x00\x00\x07\x00\x23", False),
    ],
)
def test_probe_given_a_reply_judges_it(
    module: Load, name: str, reply: bytes, expected: bool
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(reply)
        assert module("probes").is_answered(name, ours) is expected


def test_answers_without_a_server_is_false(module: Load) -> None:
    with listening(0) as server:
        port = server.getsockname()[1]
    assert not module("probes").answers("redis", "127.0.0.1", port)


def test_choose_engine_without_packages_takes_docker_or_gives_one_line(
    module: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    services, docker = module("services"), module("docker_engine")
    monkeypatch.setattr(services.packages, "missing", lambda _: ["redis"])
    monkeypatch.setattr(services.packages, "can_install", lambda: False)
    monkeypatch.setattr(docker, "is_there", lambda: True)
    assert services.choose_engine(None, ["redis"]) == "docker"
    monkeypatch.setattr(docker, "is_there", lambda: False)
    with pytest.raises(services.ServiceError, match=r"^[^\n]*(redis|docker)[^\n]*$"):
        services.choose_engine(None, ["redis"])


def test_start_in_docker_calls_compose_with_this_checkouts_name_and_port(
    module: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker, seen = tmp_path / "bin" / "docker", tmp_path / "seen"
    script(docker, f'echo "$DUEBRIDGE_REDIS_PORT" "$@" >>"{seen}"')
    monkeypatch.setenv("PATH", str(docker.parent), prepend=os.pathsep)
    found = module("docker_engine").start(place := module("state").Place(tmp_path), "redis")
    project = f"compose -p duebridge-{place.tag} -f {LOCAL / 'compose.yaml'}"
    assert seen.read_text("utf-8") == f"{found.port} {project} up -d --no-deps redis\n"


def test_read_compose_file_agrees_with_the_native_services(module: Load) -> None:
    text, version = (LOCAL / "compose.yaml").read_text("utf-8"), module("packages").KAFKA
    services = text.partition("\nvolumes:")[0]
    assert set(re.findall(r"^  (\w+):$", services, re.M)) == set(module("services").STARTERS)
    images = {"redis:8", "rabbitmq:4-management", f"apache/kafka:{version}"}
    assert set(re.findall(r"image: (\S+)", text)) == images
    assert f"<version>{version}</version>" in (LOCAL / "kafka" / "pom.xml").read_text("utf-8")


def test_environment_of_rabbitmq_given_foreign_settings_drops_them(
    module: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RABBITMQ_USE_LONGNAME", "true")
    monkeypatch.setenv("ERL_FLAGS", "-sname other")
    place, kept = module("state").Place(tmp_path), {"rabbitmq": 1, "rabbitmq_dist": 2, "epmd": 3}
    found = module("rabbitmq_server").environment(place, tmp_path, kept)
    assert {"RABBITMQ_USE_LONGNAME", "ERL_FLAGS"}.isdisjoint(found)
    assert found["RABBITMQ_NODENAME"] == f"duebridge-{place.tag}@localhost"
    assert (found["HOME"], found["ERL_EPMD_PORT"]) == (str(tmp_path), "3")


def test_new_cluster_id_never_looks_like_an_option(
    module: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, drawn = module("kafka_server"), iter([UUID(bytes=b"\xf8" * 16), UUID(int=0)])
    monkeypatch.setattr(kafka.uuid, "uuid4", lambda: next(drawn))
    assert kafka.new_cluster_id() == "A" * 22


def test_jars_asked_twice_are_fetched_once_and_only_whole(
    module: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, packages = module("kafka_server"), module("packages")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    into = "for word; do case $word in -DoutputDirectory=*) cd ${word#*=};; esac; done; touch"
    mvn = script(tmp_path / "mvn", f"{into} half.jar; echo torn >&2; exit 1")
    monkeypatch.setattr(packages, "maven", lambda: str(mvn))
    with pytest.raises(packages.ServiceError, match="torn"):
        kafka.jars()
    assert list((tmp_path / "duebridge").glob("*kafka-*")) == []
    script(mvn, f'{into} kafka_2.13-0.jar; echo once >>"{tmp_path}/count"')
    assert kafka.jars() == kafka.jars() == tmp_path / "duebridge" / f"kafka-{packages.KAFKA}"
    assert (tmp_path / "count").read_text("utf-8") == "once\n"


def test_spark_jars_without_maven_says_so_and_prints_nothing(
    module: Load,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spark, packages = module("spark_jars"), module("packages")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(packages, "EXTRA_PATH", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert spark.main() == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()[-1]) == ("", "mvn is not installed")


def test_bootstrap_with_fresh_stamp_says_and_does_nothing(tmp_path: Path) -> None:
    shutil.copytree(LOCAL, tmp_path / "deploy" / "local")
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).write_text(name, "utf-8")
    script(tmp_path / ".venv" / "bin" / "python", "exit 1")
    stamp = 'echo "$(cat requirements.lock pyproject.toml | cksum) $(pwd -P)" >.venv/.stamp'
    subprocess.run(["sh", "-c", stamp], cwd=tmp_path, check=True)
    bootstrap = ["sh", "deploy/local/bootstrap.sh"]
    done = subprocess.run(bootstrap, cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout + done.stderr == b""


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
def test_up_and_down_of_redis_starts_once_restarts_what_died_and_leaves_nothing(
    module: Load, tmp_path: Path
) -> None:
    shutil.copytree(LOCAL, tmp_path / "deploy" / "local")
    state, process = module("state"), module("process")
    place = state.Place(tmp_path.resolve())

    def services(command: str) -> tuple[int, str]:
        words = [sys.executable, "deploy/local/services.py", command, "--only", "redis"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    try:
        assert "started" in services("up")[1]
        first = state.load(place)["redis"]
        assert "already running" in services("up")[1]
        assert state.load(place)["redis"] == first
        os.kill(first.pid, signal.SIGKILL)
        assert process.wait_until(lambda: not process.is_alive(first), 30)
        assert services("status")[0] == 1
        assert "started" in services("up")[1]
        second = state.load(place)["redis"]
        assert services("env") == (0, f"export DUEBRIDGE_TEST_REDIS_URL={first.address}\n")
    finally:
        assert "stopped" in services("down")[1]
    assert not process.is_alive(second)
    assert state.is_free(second.port)
    assert state.load(place) == {}
