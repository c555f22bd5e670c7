"""`scripts`: the server's time for one call of each script, with small and with large bodies."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from duebridge.bench.figures import BenchRow, percentile
from duebridge.bench.stage import BODY_BYTES, MAX_DELAY_MS, Stage
from duebridge.envelope import Envelope
from duebridge.ports.publisher import Reason
from duebridge.store.batching import CALL_BYTES, CALL_ROWS, PROMOTE_ROWS, batches
from duebridge.store.delay_store import DelayStore
from duebridge.store.wire.leases import Claim
from duebridge.store.wire.transitions import Ack, Burial, Retry, ScheduleMode, SetAside

LEASE_MS = 60_000
LARGE_BYTES = 256 * 1024  # the standard max_body
LARGE_ROWS = 4  # in the place of `CALL_ROWS`: a call carries one or two
OUT_AT_ONCE = 8  # envelopes that are out when they are cancelled
TAG, LETTERS = "bench---", "bench:letters"
T = TypeVar("T")


def measure_scripts(stage: Stage, calls: int) -> Iterator[BenchRow]:
    """Yield the slowest call of each script, and its 99.9th percentile.

    Times are the server's own, which are exact only while nobody else uses it. Each call has as
    many ids as a worker asks for.
    """
    passes = (("", BODY_BYTES, CALL_ROWS), (" of 256 KiB", LARGE_BYTES, LARGE_ROWS))
    for what, body_bytes, rows in passes:
        namespace = stage.namespace()
        watch = _ScriptWatch(stage)
        work = _ScriptWork(stage.store(namespace), watch, body_bytes, rows)
        for _ in range(calls):
            work.deliver_and_bury()
            work.change_and_take_back()
            work.send_letters()
        stage.delete(namespace)
        for name, times_us in watch.times_us.items():
            yield _row(name + what, times_us)


def _row(name: str, times_us: Sequence[int]) -> BenchRow:
    ordered = sorted(time_us / 1000 for time_us in times_us)
    figures = {
        "calls": float(len(ordered)),
        "p50_ms": percentile(ordered, 0.5),
        "p999_ms": percentile(ordered, 0.999),
        "most_ms": ordered[-1],
    }
    return BenchRow("scripts", name, figures)


class _ScriptWatch:
    """Notes how long the server took for each call of a script, by a name."""

    def __init__(self, stage: Stage) -> None:
        self.times_us: dict[str, list[int]] = {}
        self._meter = stage.meter
        self._before_us = 0
        self._name = ""
        stage.connection.observe = self._observe

    def timed(self, name: str, call: Callable[[], T]) -> T:
        """Return what a call of the store returns; it may be several calls of a script."""
        self._name, self._before_us = name, self._meter.script_us()
        try:
            return call()
        finally:
            self._name = ""

    def _observe(self, _script: str, _seconds: float) -> None:
        if self._name:
            after_us = self._meter.script_us()
            self.times_us.setdefault(self._name, []).append(after_us - self._before_us)
            self._before_us = after_us


class _ScriptWork:
    """Calls every script that a worker or a producer calls, over envelopes with such bodies."""

    def __init__(self, store: DelayStore, watch: _ScriptWatch, body_bytes: int, rows: int) -> None:
        self._store, self._timed = store, watch.timed
        self._body_bytes, self._rows = body_bytes, rows

    def deliver_and_bury(self) -> None:
        """Let one batch fail and end dead, and another be released and delivered."""
        store, timed = self._store, self._timed
        self._schedule(2 * self._rows)
        timed("next", store.next)
        self._promote()
        for claim in self._claims(self._rows):
            timed("retry", partial(store.retry, claim.token, _retries(claim)))
        for claim in self._claims(self._rows):
            timed("release", partial(store.release, claim.token, claim.ids))
        self._promote()
        for claim in self._claims(self._rows):
            timed("ack", partial(store.ack, _acks(claim)))
        for claim in self._claims(self._rows):
            timed("bury", partial(store.bury, claim.token, _burials(claim)))
            timed("drop", partial(store.drop, claim.ids))

    def change_and_take_back(self) -> None:
        """Replace, move and cancel what waits; take back what is set aside, lost or cancelled."""
        store, timed = self._store, self._timed
        ids = self._schedule(self._rows, after_ms=MAX_DELAY_MS // 2)
        self._schedule(self._rows, ids, name="replace")
        timed("cancel", lambda: store.cancel(ids[0]))
        timed("reschedule", lambda: store.reschedule(ids[1], "+0", MAX_DELAY_MS))
        self._promote()
        for claim in self._claims(self._rows - 1):
            aside = [SetAside(id=one_id, delay_ms=LEASE_MS, tag=TAG) for one_id in claim.ids]
            timed("set_aside", partial(store.set_aside, claim.token, aside))
        timed("resume", lambda: store.resume(TAG, PROMOTE_ROWS))
        self._claims(self._rows - 1, lease_ms=0)
        timed("reclaim", lambda: store.reclaim(CALL_ROWS))
        for claim in self._claims(self._rows - 1, lease_ms=0):
            for one_id in claim.ids[:OUT_AT_ONCE]:
                store.cancel(one_id)
        timed("reclaim", lambda: store.reclaim(CALL_ROWS, counted=False))
        while store.next().unack:
            store.reclaim(CALL_ROWS, counted=False)

    def send_letters(self) -> None:
        """Bury a batch and what was left, and send the dead letters."""
        store, timed = self._store, self._timed
        self._schedule(self._rows)
        self._promote()
        while (claim := store.claim(CALL_ROWS, LEASE_MS, limit_bytes=CALL_BYTES)).token:
            store.bury(claim.token, _burials(claim))
        timed("readdress", lambda: store.readdress(LETTERS, PROMOTE_ROWS, mode="asked"))
        while (claim := timed("shunt", self._shunt)).token:
            timed("ack", partial(store.ack, _acks(claim), shunted=True))

    def _schedule(
        self, count: int, ids: Sequence[str] = (), *, after_ms: int = 0, name: str = "schedule"
    ) -> list[str]:
        """Schedule so many, or replace those ids; return the ids."""
        due_ms = self._store.next().now_ms + after_ms
        named: Sequence[str | None] = ids or [None] * count
        envelopes = [
            Envelope.new(secrets.token_bytes(self._body_bytes), at=due_ms, id=one_id)
            for one_id in named
        ]
        mode: ScheduleMode = "replace" if ids else "refuse"
        for some in batches(envelopes, lambda _: self._body_bytes):
            call = partial(self._store.schedule, some, max_delay_ms=MAX_DELAY_MS, mode=mode)
            self._timed(name, call)
        return [each.id for each in envelopes]

    def _promote(self) -> None:
        self._timed("promote", lambda: self._store.promote(PROMOTE_ROWS))

    def _claims(self, count: int, *, lease_ms: int = LEASE_MS) -> list[Claim]:
        """Claim so many, in as many calls as their bytes take."""
        claims = [self._claim(lease_ms)]
        while claims[-1].token and sum(claim.taken for claim in claims) < count:
            claims.append(self._claim(lease_ms))
        return claims

    def _claim(self, lease_ms: int) -> Claim:
        call = partial(self._store.claim, CALL_ROWS, lease_ms, limit_bytes=CALL_BYTES)
        return self._timed("claim", call)

    def _shunt(self) -> Claim:
        return self._store.shunt(CALL_ROWS, LEASE_MS, limit_bytes=CALL_BYTES)


def _acks(claim: Claim) -> list[Ack]:
    return [Ack(each, claim.token) for each in claim.ids]


def _retries(claim: Claim) -> list[Retry]:
    return [
        Retry(id=one_id, delay_ms=0, is_failure=True, is_unsure=False, error="E\nrefused")
        for one_id in claim.ids
    ]


def _burials(claim: Claim) -> list[Burial]:
    return [
        Burial(
            id=one_id,
            reason=Reason.ATTEMPTS_EXHAUSTED,
            is_failure=True,
            is_unsure=False,
            error="E\nrefused",
        )
        for one_id in claim.ids
    ]
