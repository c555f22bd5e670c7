"""Carries out the decisions about a batch: acks, retries, burials and releases, each in bulk.

Acks of several batches may share a call: an isolated confirm is acked at once; what follows within
`ACK_EVERY_S` of a shard's last ack waits until then, since a call to an idle server costs ten times
as much as one more id in a call. Acks lost with the process become redeliveries.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import structlog

from duebridge.store.batching import CALL_ROWS, in_calls
from duebridge.store.delay_store import DelayStore
from duebridge.store.replies import Claim, LeasedEnvelope, SettleReply
from duebridge.store.transitions import Ack, Burial, Decision, Release, RememberedId, Retry
from duebridge.worker.shard import BACKLOG, ShardView


class Confirmed(NamedTuple):
    """What the store is to ack: ids, and the token of each."""

    tokens: tuple[bytes, ...] = ()
    ids: tuple[str, ...] = ()
    remembered: tuple[RememberedId, ...] = ()

    def joined(self, other: "Confirmed") -> "Confirmed":
        """Return this and another as one."""
        moved = (each._replace(place=each.place + len(self.ids)) for each in other.remembered)
        return Confirmed(
            self.tokens + other.tokens, self.ids + other.ids, (*self.remembered, *moved)
        )

    def in_calls(self) -> Iterator["Confirmed"]:
        """Yield this in parts, each for one call."""
        for at in range(0, len(self.ids), CALL_ROWS):
            end = at + CALL_ROWS
            those = (each for each in self.remembered if at <= each.place < end)
            moved = (each._replace(place=each.place - at) for each in those)
            yield Confirmed(self.tokens[at:end], self.ids[at:end], tuple(moved))


def settle(
    store: DelayStore, claim: Claim, decisions: Sequence[Decision], *, target_failed: bool
) -> list[SettleReply]:
    """Carry out all but the acks of one claim, each kind by itself; returns the answers."""
    retries = [each for each in decisions if isinstance(each, Retry)]
    burials = [each for each in decisions if isinstance(each, Burial)]
    releases = [each.id for each in decisions if isinstance(each, Release)]
    token = claim.token
    return [
        *(store.retry(token, some, target_failed=target_failed) for some in in_calls(retries)),
        *(store.bury(token, some) for some in in_calls(burials)),
        *(store.release(token, some) for some in in_calls(releases)),
    ]


def confirmed(claim: Claim, decisions: Sequence[Decision]) -> Confirmed:
    """Return what of a claim is to be acked."""
    ids = tuple(each.id for each in decisions if isinstance(each, Ack))
    return Confirmed((claim.token,) * len(ids), ids, tuple(remembered(claim.leased, ids)))


def remembered(leased: Sequence[LeasedEnvelope], acks: Sequence[str]) -> list[RememberedId]:
    """Return what an ack brings back for the ids that outlive their delivery."""
    keep = {each.id: each.record for each in leased if each.record.remember_ms}
    if not keep:
        return []
    return [
        RememberedId(place, keep[each].remember_ms, keep[each].content_hash)
        for place, each in enumerate(acks)
        if each in keep
    ]


ACK_EVERY_S = 0.02


class Acks:
    """What was confirmed and is not acked yet, by shard; any thread may ask."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._waiting: dict[ShardView, Confirmed] = {}
        self._acked_at: dict[ShardView, float] = {}

    def gather(
        self, view: ShardView, confirmed: Confirmed, *, at_once: bool = False
    ) -> Confirmed | None:
        """Return what is to be acked now, with all that waited; None where nothing is."""
        with self._lock:
            gathered = self._waiting.pop(view, Confirmed()).joined(confirmed)
            if not gathered.ids:
                return None
            now = self._monotonic()
            is_due = now >= self._acked_at.get(view, 0.0) + ACK_EVERY_S
            if is_due or at_once or len(gathered.ids) >= BACKLOG:
                self._acked_at[view] = now
                return gathered
            self._waiting[view] = gathered
            return None

    def views(self) -> Sequence[ShardView]:
        """Return the shards of which something waits."""
        with self._lock:
            return list(self._waiting)

    def overdue(self) -> Sequence[ShardView]:
        """Return the shards whose next batch should have taken along what waits, and has not come.

        They are told once: whoever asks has `ACK_EVERY_S` to take it.
        """
        with self._lock:
            now = self._monotonic()
            found = [each for each in self._waiting if self._overdue_at(each) <= now]
            self._acked_at |= dict.fromkeys(found, now)
            self._forget(now)
            return found

    def sleep_s(self) -> float | None:
        """Seconds until something is overdue; None where nothing waits."""
        with self._lock:
            waits = [self._overdue_at(each) - self._monotonic() for each in self._waiting]
            return max(0.0, min(waits)) if waits else None

    def _overdue_at(self, view: ShardView) -> float:
        return self._acked_at.get(view, 0.0) + 2 * ACK_EVERY_S

    def _forget(self, now: float) -> None:
        """Keep no shard that is not served any more."""
        for view in [each for each, at in self._acked_at.items() if at + 1 < now]:
            if view not in self._waiting:
                del self._acked_at[view]


log = structlog.get_logger()


def report(route: str, claim: Claim, decisions: Sequence[Decision]) -> None:
    """Log what was retried and buried; never a body, never a header."""
    retried = [each for each in decisions if isinstance(each, Retry)]
    buried = [each for each in decisions if isinstance(each, Burial)]
    if not retried and not buried:
        return
    attempts = {each.id: each.flight.attempt for each in claim.leased}
    for kind, level, found in (("retried", log.info, retried), ("buried", log.warning, buried)):
        lines = [_fields(route, each, attempts) for each in found]
        if lines:
            level(kind, count=len(lines), **lines[0])
        for line in lines:
            log.debug("envelope", became=kind, **line)


def _fields(route: str, decision: Retry | Burial, attempts: dict[str, int]) -> dict[str, object]:
    fields: dict[str, object] = {
        "route": route,
        "id": decision.id,
        "attempt": attempts.get(decision.id, 0),
        "error": decision.error.replace("\n", ": ", 1),
    }
    if isinstance(decision, Burial):
        return fields | {"reason": decision.reason.word}
    return fields | {"delay_ms": decision.delay_ms, "counted": decision.is_failure}
