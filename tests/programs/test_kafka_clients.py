"""Kafka programs that know nothing of duebridge but two header names."""

from pathlib import Path
from typing import Any

import pytest

from tests.programs.site import Open
from tests.programs.toolchains import go, python

# Go compiles its Kafka client, the first time.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
HELD_MS = 100_000


@pytest.fixture
def folder(examples: Path) -> Path:
    return examples / "kafka-delays"


@pytest.mark.parametrize(
    ("client", "own"), [("franz-go", "kafka-python"), ("kafka-python", "librdkafka")]
)
def test_send_reminders_from_a_kafka_client_brings_each_when_it_is_due(
    folder: Path,
    open_site: Open,
    kafka_bootstrap: str,
    name: str,
    topics: Any,
    client: str,
    own: str,
) -> None:
    site = open_site(folder, KAFKA=kafka_bootstrap, TOPIC=name, KAFKA_CLIENT=own)
    consumer = go(folder, "./later.go")
    publish = [*consumer, "publish"] if client == "franz-go" else python(folder, "later.py")
    site.worker()
    reader = site.start([*consumer, "consume"])
    sent = {}
    for line in site.call([*publish, "3000", "100", str(HELD_MS), "1500"]).splitlines():
        due_at, body = line.split(" ", 1)
        sent[body] = int(due_at)
    due = {f"remind after {delay}" for delay in (100, 1500, 3000)}
    while due:  # in any order, where the intake took the first in long before the last
        got_at, rest = reader.line().split(" ", 1)
        body = rest.removesuffix(" customer-7 a")
        due.remove(body)
        assert int(got_at) >= sent[body]
