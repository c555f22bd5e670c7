"""`memory` and `idle`: what a pending message and a shard without work cost."""

import time
from collections.abc import Iterator

from duebridge.bench.figures import Row
from duebridge.bench.stage import BODY_BYTES, Stage

IDLE_SHARDS = 4


def measure_memory(stage: Stage, pending: int) -> Iterator[Row]:
    """Give the memory of a pending message above its body, the journal apart."""
    namespace = stage.namespace()
    yield Row("memory", "pending", fill_and_weigh(stage, namespace, pending))
    stage.delete(namespace)


def fill_and_weigh(stage: Stage, namespace: str, pending: int) -> dict[str, float]:
    """Make so many pending, and return what each takes above its body."""
    before = stage.meter.dataset_bytes()
    stage.fill(namespace, pending)
    grown = stage.meter.dataset_bytes() - before - stage.journal_bytes(namespace)
    return {"pending": pending, "memory_bytes": grown / pending - BODY_BYTES}


def measure_idle(stage: Stage, seconds: float) -> Iterator[Row]:
    """Give the store calls of a worker that has nothing to do."""
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
    yield Row("idle", "a shard and worker", figures)
