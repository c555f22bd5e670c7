"""`memory` and `idle`: the cost of pending messages and idle shards."""

import time
from collections.abc import Iterator

from duebridge.bench.figures import BenchRow
from duebridge.bench.stage import BODY_BYTES, Stage

IDLE_SHARDS = 4


def measure_memory(stage: Stage, pending: int) -> Iterator[BenchRow]:
    """Yield the memory of a pending message above its body, without the journal."""
    namespace = stage.namespace()
    yield BenchRow("memory", "pending", fill_and_weigh(stage, namespace, pending))
    stage.delete(namespace)


def fill_and_weigh(stage: Stage, namespace: str, pending: int) -> dict[str, float]:
    """Make `pending` messages pending; returns the memory of one above its body."""
    before = stage.meter.dataset_bytes()
    stage.fill(namespace, pending)
    grown = stage.meter.dataset_bytes() - before - stage.journal_bytes(namespace)
    return {"pending": pending, "memory_bytes": grown / pending - BODY_BYTES}


def measure_idle(stage: Stage, seconds: float) -> Iterator[BenchRow]:
    """Yield the store calls of an idle worker."""
    namespace = stage.namespace()
    with stage.running(namespace, shards=IDLE_SHARDS) as running:
        running.start()
        time.sleep(1.0)
        before = stage.meter.read()
        time.sleep(seconds)
        spent = stage.meter.read().since(before)
    stage.delete(namespace, IDLE_SHARDS)
    calls = spent.calls / spent.seconds / IDLE_SHARDS
    figures = {"calls_per_s": calls, "others_calls": spent.all_calls - spent.calls}
    yield BenchRow("idle", "a shard and worker", figures)
