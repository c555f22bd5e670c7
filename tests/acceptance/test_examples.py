"""The programs in examples/, each run in a copy of its folder on real services."""

import importlib.util
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient

from duebridge.store.server.embedded import stop_embedded
from tests.support.checkout import ROOT, downloaded
from tests.support.command import PROGRAM

EXAMPLES = ROOT / "examples"
CHART = ROOT / "deploy" / "helm" / "duebridge"
WITHIN_S = 60


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the example that the test's parameter names."""
    return Path(shutil.copytree(EXAMPLES / request.param, tmp_path / request.param))


@pytest.fixture
def settings(embedded: Path) -> dict[str, str]:
    """The store that the examples take from their environment."""
    return {"REDIS_URL": f"embedded:{embedded}", "NAMESPACE": f"example-{secrets.token_hex(6)}"}


@pytest.fixture
def topic(kafka_bootstrap: str) -> Iterator[str]:
    """A topic and one of failed messages."""
    name = f"orders-{secrets.token_hex(4)}"
    settings = {"num_partitions": 1, "replication_factor": 1}
    with closing(KafkaAdminClient(bootstrap_servers=kafka_bootstrap)) as admin:
        topics = dict.fromkeys((name, f"{name}-failed"), settings)
        admin.create_topics(topics, wait_for_metadata=True)
        yield name
        admin.delete_topics(list(topics))


@contextmanager
def running(home: Path, *command: str, **env: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a program in a folder, and stop it at the end."""
    environment = {**os.environ, **env}
    with (home / f"{Path(command[-1]).name}.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=WITHIN_S)


@pytest.mark.parametrize("home", ["script"], indirect=True)
def test_run_script_prints_what_the_store_answered(home: Path) -> None:
    try:
        words = [sys.executable, "remind.py"]
        done = subprocess.run(words, cwd=home, capture_output=True, text=True, check=False)
    finally:
        stop_embedded(home / ".duebridge")
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.splitlines()
    assert first.startswith("accepted: due at 1")
    assert others == [
        "contract-42: accepted",
        "contract-42: duplicate",
        "reschedule: rescheduled",
        "cancel: cancelled",
        "cancel again: unknown",
        "1000 accepted",
    ]


def test_examples_side_by_side_share_no_namespace_and_consume_no_topic_twice() -> None:
    configs = [yaml.safe_load(file.read_text()) for file in EXAMPLES.glob("*/duebridge.yaml")]
    spaces = [each["store"].get("namespace", "of its own directory") for each in configs]
    programs = [program.read_text() for program in EXAMPLES.glob("*/*.py")]
    topics = [  # what two hand back to it, each gets of the other, again and again
        re.findall(r'"TOPIC", "(.+?)"', text)[0] for text in programs if "KafkaConsumer(" in text
    ]
    for names in (spaces, topics):
        assert len(set(names)) == len(names) > 1, sorted(names)


def load_app(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_app", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("home", ["fastapi"], indirect=True)
def test_call_service_answers_by_http_status(
    home: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    testclient = pytest.importorskip("fastapi.testclient", reason="fastapi is not installed")
    monkeypatch.chdir(home)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    service = load_app(home / "app.py")
    with testclient.TestClient(service.app) as client:
        given = {"text": "call back", "delay": "1h"}
        stored = client.put("/reminders/call-7", json=given)
        assert (stored.status_code, stored.json()["status"]) == (202, "accepted")
        assert client.put("/reminders/call-7", json=given).json()["status"] == "duplicate"
        assert client.put("/reminders/call-7", json={**given, "text": "no"}).status_code == 409
        assert client.put("/reminders/call-8", json={**given, "delay": "?"}).status_code == 422
        assert client.delete("/reminders/call-7").json()["status"] == "cancelled"
        assert client.delete("/reminders/call-9").status_code == 404
        monkeypatch.setattr(service, "ROUTE", "reminder")
        unknown = client.delete("/reminders/call-7")
        assert (unknown.status_code, "did you mean reminders?" in unknown.text) == (500, True)


@pytest.mark.parametrize("home", ["consumer"], indirect=True)
def test_consume_failing_order_comes_back_until_it_is_sent(
    home: Path, settings: dict[str, str], kafka_bootstrap: str, topic: str
) -> None:
    env = {**settings, "KAFKA": kafka_bootstrap, "TOPIC": topic, "DELAYS": "100ms 100ms 10s"}
    with closing(KafkaProducer(bootstrap_servers=kafka_bootstrap)) as producer:
        producer.send(topic, b"order-1", key=b"customer-7").get(WITHIN_S)
    with (
        running(home, PROGRAM, "run", **env),
        running(home, sys.executable, "-u", "consume.py", **env) as consumer,
    ):
        assert consumer.stdout is not None
        closed = "order-1: the warehouse is closed; handed to orders-again\n"
        assert [consumer.stdout.readline() for _ in range(2)] == [closed] * 2
        (home / "warehouse-is-open").touch()
        shown = consumer.stdout.readline()
        sent = consumer.stdout.readline() if shown == closed else shown
    assert sent == "order-1: sent\n"


@pytest.mark.parametrize("home", ["consumer"], indirect=True)
def test_consume_order_that_always_fails_ends_among_the_failed(
    home: Path, settings: dict[str, str], kafka_bootstrap: str, topic: str
) -> None:
    env = {**settings, "KAFKA": kafka_bootstrap, "TOPIC": topic, "DELAYS": "100ms"}
    with closing(KafkaProducer(bootstrap_servers=kafka_bootstrap)) as producer:
        sent = producer.send(topic, b"order-2", key=b"customer-7", headers=[("tenant", b"3")])
        sent.get(WITHIN_S)
    failed = KafkaConsumer(
        f"{topic}-failed", bootstrap_servers=kafka_bootstrap, auto_offset_reset="earliest"
    )
    with (
        closing(failed),
        running(home, PROGRAM, "run", **env),
        running(home, sys.executable, "-u", "consume.py", **env),
    ):
        record = next(failed)
    assert (record.value, record.key) == (b"order-2", b"customer-7")
    headers = dict(record.headers)
    assert (headers["failures"], headers["tenant"]) == (b"2", b"3")


def test_render_kubernetes_values_gives_scaled_workers() -> None:
    helm = f"{downloaded('helm')}/helm"
    values = str(EXAMPLES / "kubernetes" / "values.yaml")
    template = [helm, "template", "demo", str(CHART), "-f", values]
    shown = subprocess.run(template, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    kinds = {each["kind"] for each in yaml.safe_load_all(shown.stdout) if each}
    assert {"Deployment", "ScaledObject", "ServiceMonitor", "PrometheusRule"} <= kinds
