"""What becomes of each envelope of a batch: outcomes turned into transitions, then carried out.

`decide` is the whole table, and pure; `settle` makes the store calls, each of one kind, but for the
acks: those of several batches may go together (`bridge.acks`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from bridge.backoff import retry_delay_ms
from bridge.config import Route
from bridge.publisher import Outcome, Verdict
from bridge.reasons import Reason
from bridge.store.batching import CALL_ROWS, in_calls
from bridge.store.delay_store import Burial, DelayStore, Remembered, Retry
from bridge.store.replies import Claim, Damaged, Leased, Settled


class Ack(NamedTuple):
    """The broker confirmed it."""

    id: str


class Release(NamedTuple):
    """It never reached the broker's client."""

    id: str


Decision: TypeAlias = Ack | Release | Retry | Burial


class Confirmed(NamedTuple):
    """What the store is to ack: ids, and the token of each."""

    tokens: tuple[bytes, ...] = ()
    ids: tuple[str, ...] = ()
    remembered: tuple[Remembered, ...] = ()

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


class Circumstances(NamedTuple):
    """What else decides: whether a target error buries, whether others were answered since."""

    is_past_hold: bool = False
    confirmed_since: bool = False


def decide(leased: Leased, outcome: Outcome, route: Route, around: Circumstances) -> Decision:
    """Return what becomes of an envelope; `failures` alone is compared with `max_attempts`."""
    match outcome.verdict:
        case Verdict.CONFIRMED:
            return Ack(leased.id)
        case Verdict.UNAVAILABLE:
            return Release(leased.id)
        case Verdict.REJECTED:
            return Burial(leased.id, outcome.reason, True, False, outcome.error)
        case Verdict.TARGET_FAILED if around.is_past_hold:
            return Burial(leased.id, outcome.reason, False, False, outcome.error)
        case Verdict.TARGET_FAILED:
            return _again(leased, outcome, route, is_failure=False, is_unsure=False)
        case Verdict.FAILED:
            return _again(leased, outcome, route, is_failure=True, is_unsure=False)
        case Verdict.INDETERMINATE:
            counts = around.confirmed_since
            return _again(leased, outcome, route, is_failure=counts, is_unsure=True)


def _again(
    leased: Leased, outcome: Outcome, route: Route, *, is_failure: bool, is_unsure: bool
) -> Retry | Burial:
    failures = leased.flight.failures + is_failure
    allowed = leased.content.max_attempts or route.retry.max_attempts
    if is_failure and failures >= allowed:
        reason = Reason.ATTEMPTS_EXHAUSTED
        return Burial(leased.id, reason, is_failure, is_unsure, outcome.error)
    delay_ms = retry_delay_ms(route.retry, leased.flight.retries)
    return Retry(leased.id, delay_ms, is_failure, is_unsure, outcome.error)


def decide_damaged(damaged: Damaged) -> Decision:
    """Return what becomes of an envelope that cannot be read: only damage is poison."""
    if damaged.is_too_new:
        return Release(damaged.id)
    error = f"{type(damaged.error).__name__}\n{damaged.error}"
    return Burial(damaged.id, Reason.POISON, False, False, error)


def settle(
    store: DelayStore, claim: Claim, decisions: Sequence[Decision], *, target_failed: bool
) -> list[Settled]:
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


def remembered(leased: Sequence[Leased], acks: Sequence[str]) -> list[Remembered]:
    """Return what an ack brings back for the ids that outlive their delivery."""
    keep = {each.id: each.record for each in leased if each.record.remember_ms}
    if not keep:
        return []
    return [
        Remembered(place, keep[each].remember_ms, keep[each].content_hash)
        for place, each in enumerate(acks)
        if each in keep
    ]
