"""Settles a batch: applies its acks and decisions in the store, in bulk.

Batches share ack calls, since a call costs ten times as much as one more id: an isolated confirm is
acked immediately; confirms within `ACK_EVERY_S` of the shard's last ack are buffered. If the
process dies, buffered acks become redeliveries.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog

from duebridge.errors import on_one_line
from duebridge.ports.publisher import Reason
from duebridge.store.batching import in_calls
from duebridge.store.wire.replies import SettleReply
from duebridge.store.wire.transitions import (
    Ack,
    Burial,
    Decision,
    Postponement,
    Release,
    Retry,
    SetAside,
)
from duebridge.worker.shard import ShardView

ACK_EVERY_S = 0.02
MOST_BUFFERED = 100  # acks of a shard, which wait no longer then

log = structlog.get_logger()


def settle(
    view: ShardView, token: bytes, decisions: Iterable[Decision]
) -> Iterator[tuple[Sequence[Decision], SettleReply]]:
    """Apply the decisions on envelopes of one claim; yield those of each call, and its reply."""
    store = view.store
    retries: list[Retry] = []
    aside: list[SetAside] = []
    burials: list[Burial] = []
    releases: list[Release] = []
    for each in decisions:
        match each:
            case Retry():
                retries.append(each)
            case SetAside():
                aside.append(each)
            case Burial():
                burials.append(each)
            case Release():
                releases.append(each)
    yield from ((some, store.retry(token, some)) for some in in_calls(retries))
    yield from ((some, store.set_aside(token, some)) for some in in_calls(aside))
    yield from ((some, store.bury(token, some)) for some in in_calls(burials))
    for some in in_calls(releases):
        yield some, store.release(token, [each.id for each in some])


def settle_letters(
    view: ShardView, token: bytes, decisions: Iterable[Decision]
) -> list[SettleReply]:
    """Apply the decisions on dead letters of one shunt; return the store's replies."""
    postponed, target = [postponement(each) for each in decisions], str(view.dead_letter)
    return [view.store.postpone(token, some, target) for some in in_calls(postponed)]


def postponement(decision: Decision) -> Postponement:
    """Translate a decision for a dead letter: nothing buries it a second time."""
    match decision:
        case Retry():
            return Postponement(decision.id, decision.delay_ms, decision.error)
        case Burial():
            return Postponement(decision.id, None, decision.error)
        case _:
            return Postponement(decision.id, 0)


class Acks:
    """Buffers acks by shard. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._waiting: dict[ShardView, Sequence[Ack]] = {}
        self._acked_at: dict[ShardView, float] = {}

    def gather(
        self, view: ShardView, acks: Sequence[Ack] = (), *, at_once: bool = False
    ) -> Sequence[Ack]:
        """Buffer acks; return all of the shard that are due now."""
        with self._lock:
            gathered = [*self._waiting.pop(view, ()), *acks]
            if not gathered:
                return ()
            now = self._monotonic()
            is_due = now >= self._acked_at.get(view, 0.0) + ACK_EVERY_S
            if is_due or at_once or len(gathered) >= MOST_BUFFERED:
                self._acked_at[view] = now
                return gathered
            self._waiting[view] = gathered
            return ()

    def views(self) -> Sequence[ShardView]:
        """Return the shards with buffered acks."""
        with self._lock:
            return list(self._waiting)

    def overdue(self, is_ours: Callable[[ShardView], bool]) -> Sequence[ShardView]:
        """Return which of our shards have buffered acks that are overdue.

        Each shard is reported at most once per `ACK_EVERY_S`.
        """
        with self._lock:
            now = self._monotonic()
            found = [
                each for each in self._waiting if self._overdue_at(each) <= now and is_ours(each)
            ]
            self._acked_at |= dict.fromkeys(found, now)
            self._forget(now)
            return found

    def sleep_s(self, is_ours: Callable[[ShardView], bool]) -> float | None:
        """Return seconds until an ack of our shards is overdue; None if nothing is buffered."""
        with self._lock:
            now = self._monotonic()
            waits = [self._overdue_at(each) - now for each in self._waiting if is_ours(each)]
            return max(0.0, min(waits)) if waits else None

    def _overdue_at(self, view: ShardView) -> float:
        return self._acked_at.get(view, 0.0) + 2 * ACK_EVERY_S

    def _forget(self, now: float) -> None:
        """Drop the timestamps of shards that are no longer active."""
        for view in [each for each, at in self._acked_at.items() if at + 1 < now]:
            if view not in self._waiting:
                del self._acked_at[view]


def report(view: ShardView, attempts: dict[str, int], decisions: Sequence[Decision]) -> None:
    """Log retries and burials, one line a kind; never a body or a header."""
    retried = [each for each in decisions if isinstance(each, Retry)]
    buried = [each for each in decisions if isinstance(each, Burial)]
    for kind, level, found in (("retried", log.info, retried), ("buried", log.warning, buried)):
        lines = [_fields(view.route.name, each, attempts) for each in found]
        if lines:
            level(kind, count=len(lines), **lines[0])
        for line in lines:
            log.debug("envelope", became=kind, **line)


def report_buried(route: str, reason: Reason, count: int) -> None:
    """Log what the store itself buried: expired envelopes, and poison; counted elsewhere."""
    if count:
        log.warning("buried", route=route, reason=reason.word, count=count)


def _fields(route: str, decision: Retry | Burial, attempts: dict[str, int]) -> dict[str, object]:
    fields: dict[str, object] = {
        "route": route,
        "id": decision.id,
        "attempt": attempts.get(decision.id, 0),
        "error": on_one_line(decision.error),
    }
    if isinstance(decision, Burial):
        return fields | {"reason": decision.reason.word}
    return fields | {"delay_ms": decision.delay_ms, "counted": decision.is_failure}
