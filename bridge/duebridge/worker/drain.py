"""Drains a worker process: stops claims, settles batches in flight, then closes everything."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import structlog

from duebridge.config.models import WorkerSettings
from duebridge.errors import StoreError
from duebridge.runtime import join_all, left_s
from duebridge.worker.lanes.lane import Lane
from duebridge.worker.shard import ShardView
from duebridge.worker.worker import Worker

CLOSE_WITHIN_S = 5.0
CLOSE_MARGIN_S = 1.0
GIVE_UP_WITHIN_S = 0.2

log = structlog.get_logger()


def drain(
    worker: Worker,
    lanes: Iterable[Lane],
    views: Sequence[ShardView],
    settings: WorkerSettings,
    stop_listening: Callable[[], None],
    close: Callable[[], None],
    began: float,
) -> bool:
    """Drain the loops and lanes of a process, then close its store; see `Runner.drain`."""
    drained_by = began + settings.drain / 1000
    closed_by = drained_by + settings.publish_deadline / 1000 + CLOSE_MARGIN_S
    # First: who listens and has no record counts as frozen.
    listener = _in_background(stop_listening)
    worker.stop(left_s(drained_by))
    _in_background(lambda: _give_up_leases(views)).join(GIVE_UP_WITHIN_S)
    worker.drain(left_s(drained_by))
    closing = [_in_background(lane.close) for lane in lanes]
    join_all(closing, closed_by)  # the publishers have answered for what was outstanding
    worker.drain(min(CLOSE_WITHIN_S, left_s(closed_by)))
    closing += [listener, _in_background(close)]
    is_over = join_all(closing, max(closed_by, time.monotonic() + CLOSE_MARGIN_S / 2))
    worker.end_threads()
    log.info("drained", took_s=round(time.monotonic() - began, 3))
    return is_over


def _give_up_leases(views: Sequence[ShardView]) -> None:
    """Release the gauge leases of the shards to other workers."""
    with suppress(StoreError):  # else they do once the leases have ended
        for view in views:
            view.gauge_lease.give_up(view.store)


def _in_background(call: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=call, name="closing", daemon=True)
    thread.start()
    return thread
