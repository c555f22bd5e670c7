"""Settles a batch: applies its acks, retries, burials and releases in bulk.

Batches share ack calls, since a call costs ten times as much as one more id: an isolated confirm is
acked immediately; confirms within `ACK_EVERY_S` of the shard's last ack are buffered. If the
process dies, buffered acks become redeliveries.
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
    """Confirmed envelopes to ack: ids, the token of each, and the ids to remember."""

    tokens: tuple[bytes, ...] = ()
    ids: tuple[str, ...] = ()
    remembered: tuple[RememberedId, ...] = ()

    def joined(self, other: "Confirmed") -> "Confirmed":
        """Return the concatenation of both batches."""
        moved = (each._replace(place=each.place + len(self.ids)) for each in other.remembered)
        return Confirmed(
            self.tokens + other.tokens, self.ids + other.ids, (*self.remembered, *moved)
        )

    def in_calls(self) -> Iterator["Confirmed"]:
        """Yield chunks of at most `CALL_ROWS` ids."""
        for at in range(0, len(self.ids), CALL_ROWS):
            end = at + CALL_ROWS
            inside = (entry for entry in self.remembered if at <= entry.place < end)
            moved = (entry._replace(place=entry.place - at) for entry in inside)
            yield Confirmed(self.tokens[at:end], self.ids[at:end], tuple(moved))


def settle(
    store: DelayStore, claim: Claim, decisions: Sequence[Decision], *, target_failed: bool
) -> list[SettleReply]:
    """Apply the retries, burials and releases of one claim; return the store's replies."""
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
    """Return the envelopes of a claim whose decision is an ack."""
    ids = tuple(each.id for each in decisions if isinstance(each, Ack))
    return Confirmed((claim.token,) * len(ids), ids, tuple(remembered(claim.leased, ids)))


def remembered(leased: Sequence[LeasedEnvelope], acks: Sequence[str]) -> list[RememberedId]:
    """Return the entries for acked ids that the store remembers after delivery."""
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
    """Buffers acks of confirmed envelopes by shard. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._waiting: dict[ShardView, Confirmed] = {}
        self._acked_at: dict[ShardView, float] = {}

    def gather(
        self, view: ShardView, confirmed: Confirmed, *, at_once: bool = False
    ) -> Confirmed | None:
        """Buffer confirms; return all buffered acks of the shard if due now, else None."""
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
        """Return the shards with buffered acks."""
        with self._lock:
            return list(self._waiting)

    def overdue(self) -> Sequence[ShardView]:
        """Return shards whose buffered acks are overdue.

        Each shard is reported at most once per `ACK_EVERY_S`.
        """
        with self._lock:
            now = self._monotonic()
            found = [each for each in self._waiting if self._overdue_at(each) <= now]
            self._acked_at |= dict.fromkeys(found, now)
            self._forget(now)
            return found

    def sleep_s(self) -> float | None:
        """Return seconds until a buffered ack is overdue; None if nothing is buffered."""
        with self._lock:
            waits = [self._overdue_at(each) - self._monotonic() for each in self._waiting]
            return max(0.0, min(waits)) if waits else None

    def _overdue_at(self, view: ShardView) -> float:
        return self._acked_at.get(view, 0.0) + 2 * ACK_EVERY_S

    def _forget(self, now: float) -> None:
        """Drop the timestamps of shards that are no longer active."""
        for view in [each for each, at in self._acked_at.items() if at + 1 < now]:
            if view not in self._waiting:
                del self._acked_at[view]


log = structlog.get_logger()


def report(route: str, claim: Claim, decisions: Sequence[Decision]) -> None:
    """Log retries and burials; never a body or a header."""
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
