"""`scripts`: how long each script holds the server up, each of as many ids as a worker asks for."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from duebridge.bench.figures import Row, percentile
from duebridge.bench.stage import MAX_DELAY_MS, Stage, bodies
from duebridge.envelope import Envelope
from duebridge.ports.publisher import Reason
from duebridge.store.batching import CALL_ROWS, PROMOTE_ROWS, SCHEDULE_ROWS
from duebridge.store.delay_store import DelayStore
from duebridge.store.replies import Claim
from duebridge.store.transitions import Burial, Retry

LEASE_MS = 60_000
T = TypeVar("T")


def measure_scripts(stage: Stage, calls: int) -> Iterator[Row]:
    """Give the slowest of so many calls of each script, and the value that 99.9 % do not exceed.

    It is the server's own time for one call, which is exact only where nobody else uses it.
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
        ordered = sorted(each / 1000 for each in found)
        figures = {
            "calls": float(len(ordered)),
            "p50_ms": percentile(ordered, 0.5),
            "p999_ms": percentile(ordered, 0.999),
            "most_ms": ordered[-1],
        }
        yield Row("scripts", name, figures)


def _live_once(store: DelayStore, timed: Callable[[str, Callable[[], T]], T]) -> None:
    """Let a batch fail once and end dead, and another be given back and delivered."""
    call: Callable[[str, Callable[[], object]], object] = timed  # type: ignore[assignment]
    now_ms = store.next().now_ms
    for _ in range(2 * CALL_ROWS // SCHEDULE_ROWS):
        envelopes = [Envelope.new(body, at=now_ms) for body in bodies(SCHEDULE_ROWS)]
        call("schedule", partial(store.schedule, envelopes, max_delay_ms=MAX_DELAY_MS))
    call("next", store.next)
    call("promote", lambda: store.promote(PROMOTE_ROWS))
    retried = _claim(store, call)
    retries = [Retry(each, 0, True, False, "E\nrefused") for each in retried.ids]
    call("retry", lambda: store.retry(retried.token, retries))
    released = _claim(store, call)
    call("release", lambda: store.release(released.token, released.ids))
    call("promote", lambda: store.promote(PROMOTE_ROWS))
    acked = _claim(store, call)
    call("ack", lambda: store.ack(acked.token, acked.ids))
    buried = _claim(store, call)
    burials = [
        Burial(each, Reason.ATTEMPTS_EXHAUSTED, True, False, "E\nrefused") for each in buried.ids
    ]
    call("bury", lambda: store.bury(buried.token, burials))
    call("drop", lambda: store.drop(buried.ids))


def _claim(store: DelayStore, call: Callable[[str, Callable[[], object]], object]) -> Claim:
    claim = call("claim", lambda: store.claim(CALL_ROWS, LEASE_MS))
    assert isinstance(claim, Claim)  # noqa: S101 - `call` returns what it is given
    return claim
