"""Publishes dead envelopes to their dead-letter targets; a confirm removes them from the store."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

import structlog

from duebridge.errors import StoreError
from duebridge.headers import dead_letter_headers
from duebridge.ports.publisher import Delivery, Outcome, Reason, Verdict
from duebridge.receipt import shown_id
from duebridge.store.batching import CALL_BYTES
from duebridge.store.poll import NONE
from duebridge.store.replies import Claim, DamagedEnvelope, LeasedEnvelope
from duebridge.telemetry import metrics
from duebridge.worker.lane import Lane
from duebridge.worker.settlement import remembered
from duebridge.worker.shard import ShardView

BATCH = 100
PAUSE_S = 1.0  # after a failed dead letter; then a single one probes the target
POSTPONE_MS = 5_000

log = structlog.get_logger()


class Shunter:
    """Publishes the dead letters of a shard during its worker's turn; never drops one."""

    def __init__(
        self,
        lanes: Mapping[str, Lane],
        threads: Executor,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lanes = lanes
        self._threads = threads
        self._monotonic = monotonic
        self._in_flight: set[ShardView] = set()
        self._paused_until: dict[str, float] = {}

    def run_once(self, view: ShardView) -> int:
        """Lease due dead envelopes and publish them in the thread pool; return their number."""
        route = view.route
        if route.dead_letter is None or not view.is_due(view.poll.first_dead_ms):
            return 0
        lane = self._lane(view)
        paused_until = self._paused_until.get(route.name)
        if lane.is_stopped or view in self._in_flight:
            return 0
        if paused_until is not None and self._monotonic() < paused_until:
            return 0
        limit = BATCH if paused_until is None else 1
        claim = view.store.shunt(limit, route.lease, limit_bytes=CALL_BYTES)
        view.update(claim.poll)
        if not claim.token:
            return 0
        self._in_flight.add(view)
        self._threads.submit(self._run_letters, view, lane, claim)
        return claim.held

    def sleep_s(self, view: ShardView) -> float:
        """Return seconds until dead letters may be published; at most `PAUSE_S`."""
        first_ms = view.poll.first_dead_ms
        if first_ms == NONE or view in self._in_flight:
            return PAUSE_S
        due_s = max(0, first_ms - view.now_ms()) / 1000
        paused_s = self._paused_until.get(view.route.name, 0.0) - self._monotonic()
        is_stopped = self._lane(view).is_stopped
        return min(PAUSE_S, max(due_s, paused_s, PAUSE_S if is_stopped else 0.0))

    def _lane(self, view: ShardView) -> Lane:
        assert view.route.dead_letter is not None  # noqa: S101 - only such routes have due dead letters
        return self._lanes[view.route.dead_letter.broker]

    def _run_letters(self, view: ShardView, lane: Lane, claim: Claim) -> None:
        try:
            self._send(view, lane, claim)
        except StoreError as error:  # the leases expire
            log.warning("shunt_failed", route=view.route.name, error=str(error))
        except Exception:
            log.exception("shunt_failed", route=view.route.name)
        finally:
            self._in_flight.discard(view)

    def _send(self, view: ShardView, lane: Lane, claim: Claim) -> None:
        letters = [dead_letter(leased, view) for leased in claim.leased]
        readable = [damaged for damaged in claim.damaged if not damaged.is_too_new]
        letters += [damaged_letter(damaged, view) for damaged in readable]
        sent: list[str] = []
        kept: list[tuple[str, Outcome]] = []
        for letter, outcome in zip(letters, lane.publish(letters), strict=True):
            if outcome.verdict is Verdict.CONFIRMED:
                sent.append(letter.id)
            else:
                kept.append((letter.id, outcome))
        self._pace(view, kept)
        if sent:
            view.store.ack(claim.token, sent, remembered(claim.leased, sent), shunted=True)
            metrics.shunted.labels(view.route.name).inc(len(sent))
            log.info("shunted", route=view.route.name, count=len(sent))
        later = [envelope_id for envelope_id, _ in kept]
        if newer := [damaged.id for damaged in claim.damaged if damaged.is_too_new]:
            view.is_unreadable = True  # only a newer worker can read the record
            log.error("record_too_new", route=view.route.name)
            later += newer
        if later:
            view.store.postpone(claim.token, later, POSTPONE_MS)

    def _pace(self, view: ShardView, kept: list[tuple[str, Outcome]]) -> None:
        name = view.route.name
        if not kept:
            self._paused_until.pop(name, None)
            return
        self._paused_until[name] = self._monotonic() + PAUSE_S
        metrics.letters_kept.labels(name).inc(len(kept))
        error = kept[0][1].error_message
        log.warning("dead_letters_kept", route=name, count=len(kept), error=error)


def dead_letter(leased: LeasedEnvelope, view: ShardView) -> Delivery:
    """Return the original message plus `x-dlq-*` headers that say why it is dead."""
    assert view.route.dead_letter is not None  # noqa: S101 - only such routes are shunted
    content = leased.content
    headers = dead_letter_headers(leased, view.route.name, content.target or view.target)
    target = view.route.dead_letter
    return Delivery(leased.id, target, content.body, content.key, headers, content.properties)


def damaged_letter(damaged: DamagedEnvelope, view: ShardView) -> Delivery:
    """Return a dead letter whose body is the raw, unreadable record, for manual inspection."""
    assert view.route.dead_letter is not None  # noqa: S101 - only such routes are shunted
    headers = (
        ("x-message-id", shown_id(damaged.id)),
        ("x-dlq-reason", Reason.POISON.word),
        ("x-dlq-error-class", type(damaged.error).__name__),
        ("x-dlq-error-message", str(damaged.error)),
        ("x-dlq-route", view.route.name),
        ("x-dlq-target", str(view.target)),
    )
    return Delivery(damaged.id, view.route.dead_letter, damaged.data, headers=headers)
