"""`memory`, `idle` and `scripts`: the cost of pending messages, idle shards and script calls."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from duebridge.bench.figures import BenchRow, percentile
from duebridge.bench.stage import BODY_BYTES, MAX_DELAY_MS, Stage, bodies
from duebridge.envelope import Envelope
from duebridge.ports.publisher import Reason
from duebridge.store.batching import CALL_ROWS, PROMOTE_ROWS, SCHEDULE_ROWS
from duebridge.store.delay_store import DelayStore
from duebridge.store.wire.leases import Claim
from duebridge.store.wire.transitions import Ack, Burial, Retry

IDLE_SHARDS = 4
LEASE_MS = 60_000
T = TypeVar("T")


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


def measure_scripts(stage: Stage, calls: int) -> Iterator[BenchRow]:
    """Yield the slowest call of each script, and its 99.9th percentile.

    Times are the server's own, which are exact only while nobody else uses it. Each call has as
    many ids as a worker asks for.
    """
    namespace = stage.namespace()
    store = stage.store(namespace)
    times_us: dict[str, list[int]] = {}

    def timed(name: str, call: Callable[[], T]) -> T:
        before = stage.meter.script_us()
        found = call()
        times_us.setdefault(name, []).append(stage.meter.script_us() - before)
        return found

    for _ in range(calls):
        _live_once(store, timed)
    stage.delete(namespace)
    for name, found in times_us.items():
        ordered = sorted(time_us / 1000 for time_us in found)
        figures = {
            "calls": float(len(ordered)),
            "p50_ms": percentile(ordered, 0.5),
            "p999_ms": percentile(ordered, 0.999),
            "most_ms": ordered[-1],
        }
        yield BenchRow("scripts", name, figures)


def _live_once(store: DelayStore, timed: Callable[[str, Callable[[], T]], T]) -> None:
    """Let one batch fail and end dead, and another be released and delivered."""
    call: Callable[[str, Callable[[], object]], object] = timed  # type: ignore[assignment]
    now_ms = store.next().now_ms
    for _ in range(2 * CALL_ROWS // SCHEDULE_ROWS):
        envelopes = [Envelope.new(body, at=now_ms) for body in bodies(SCHEDULE_ROWS)]
        call("schedule", partial(store.schedule, envelopes, max_delay_ms=MAX_DELAY_MS))
    call("next", store.next)
    call("promote", lambda: store.promote(PROMOTE_ROWS))
    retried = _claim(store, call)
    retries = [
        Retry(id=one_id, delay_ms=0, is_failure=True, is_unsure=False, error="E\nrefused")
        for one_id in retried.ids
    ]
    call("retry", lambda: store.retry(retried.token, retries))
    released = _claim(store, call)
    call("release", lambda: store.release(released.token, released.ids))
    call("promote", lambda: store.promote(PROMOTE_ROWS))
    acked = _claim(store, call)
    call("ack", lambda: store.ack([Ack(each, acked.token) for each in acked.ids]))
    buried = _claim(store, call)
    burials = [
        Burial(
            id=one_id,
            reason=Reason.ATTEMPTS_EXHAUSTED,
            is_failure=True,
            is_unsure=False,
            error="E\nrefused",
        )
        for one_id in buried.ids
    ]
    call("bury", lambda: store.bury(buried.token, burials))
    call("drop", lambda: store.drop(buried.ids))


def _claim(store: DelayStore, call: Callable[[str, Callable[[], object]], object]) -> Claim:
    claim = call("claim", lambda: store.claim(CALL_ROWS, LEASE_MS))
    assert isinstance(claim, Claim)  # noqa: S101 - `call` returns its result
    return claim
