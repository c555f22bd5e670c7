"""A producer is faster than the store: what waits is the broker's, not the intake's memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.contract.source_under_test import Origin
from tests.support.redis.redis_node import RedisNode

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

COUNT, BODY_BYTES = 6_000, 10_000  # 57 MiB wait
TAKEN_IN = 4_000
CALL_S = 0.05  # of the store: a batch of 50 then takes five times as long as to receive it
MOST_MIB = 32  # 16 may be in hand; 38 were taken in
MOST_STILL_S = 10.0


@pytest.mark.parametrize("origin", ["classic", "kafka-python", "librdkafka"], indirect=True)
def test_take_in_from_a_producer_that_is_faster_than_the_store_keeps_memory_flat(
    origin: Origin, tmp_path: Path, own_redis: RedisNode
) -> None:
    origin.broker.send(origin.name, [os.urandom(BODY_BYTES) for _ in range(COUNT)])
    target = {"target": {"broker": "box", "topic": "t"}}
    config = {
        "version": 1,
        "store": {"url": own_redis.url},
        "brokers": {"it": origin.settings, "box": {"type": "memory"}},
        "routes": {"r": {**target, "dead_letter": {"broker": "box", "topic": "dead"}}},
        "intakes": {"in": {"source": {"broker": "it", **origin.source}, "route": "r"}},
    }
    path = tmp_path / "duebridge.yaml"
    path.write_text(json.dumps(config))
    program = [sys.executable, "-m", "tests.intake.process.intake_hoarder"]
    command = [*program, str(path), str(TAKEN_IN), str(CALL_S)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown_mib, still_s = map(float, done.stdout.splitlines()[-1].split())
    assert grown_mib < MOST_MIB, done.stdout
    assert still_s < MOST_STILL_S, done.stdout
