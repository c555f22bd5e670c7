"""A producer is faster than the store: what waits is the broker's, not the intake's memory."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkout import ROOT
from tests.support.kafka.kafka_sources import KafkaSources
from tests.support.rabbitmq.rabbitmq_queues import RabbitQueues
from tests.support.redis.redis_sets import server

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

COUNT, BODY_BYTES = 10_000, 10_000  # 95 MiB wait
TAKEN_IN = 4_000
CALL_S = 0.05  # of the store: a batch of 50 then takes five times as long as to receive it
MOST_MIB = 32  # 16 may be in hand; 38 were taken in
MOST_STILL_S = 10.0


@pytest.fixture(params=["classic", "kafka-python", "librdkafka"])
def source(request: pytest.FixtureRequest) -> Iterator[tuple[Any, dict[str, Any], str]]:
    """The broker of a source, its settings, and the field that names what is read."""
    if request.param == "classic":
        url = request.getfixturevalue("rabbitmq_url")
        with closing(RabbitQueues(url)) as queues:
            yield queues, {"type": "rabbitmq", "url": url}, "queue"
    else:
        bootstrap = request.getfixturevalue("kafka_bootstrap")
        settings = {"type": "kafka", "bootstrap_servers": [bootstrap], "client": request.param}
        with closing(KafkaSources(bootstrap, request.param)) as topics:
            yield topics, settings, "topic"


def test_take_in_from_a_producer_that_is_faster_than_the_store_keeps_memory_flat(
    source: tuple[Any, dict[str, Any], str], tmp_path: Path
) -> None:
    broker, settings, field = source
    name = broker.create()
    broker.send(name, [os.urandom(BODY_BYTES) for _ in range(COUNT)])
    group = {"group": f"group-of-{name}"} if field == "topic" else {}
    redis = server(tmp_path / "redis", "--appendonly", "yes")
    redis.start()
    try:
        target = {"target": {"broker": "box", "topic": "t"}}
        config = {
            "version": 1,
            "store": {"url": f"redis://127.0.0.1:{redis.port}/0"},
            "brokers": {"it": settings, "box": {"type": "memory"}},
            "routes": {"r": {**target, "dead_letter": {"broker": "box", "topic": "dead"}}},
            "intakes": {"in": {"source": {"broker": "it", field: name, **group}, "route": "r"}},
        }
        path = tmp_path / "duebridge.yaml"
        path.write_text(json.dumps(config))
        program = [sys.executable, "-m", "tests.support.intake_hoarder"]
        command = [*program, str(path), str(TAKEN_IN), str(CALL_S)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        redis.kill()
    assert done.returncode == 0, done.stderr
    grown_mib, still_s = map(float, done.stdout.splitlines()[-1].split())
    assert grown_mib < MOST_MIB, done.stdout
    assert still_s < MOST_STILL_S, done.stdout
