"""Maps the outcome of a delivery to a state transition. Pure functions."""

from typing import NamedTuple

from duebridge.config.models import Route
from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.store.replies import DamagedEnvelope, LeasedEnvelope
from duebridge.store.transitions import Ack, Burial, Decision, Release, Retry
from duebridge.worker.backoff import retry_delay_ms


class DecisionContext(NamedTuple):
    """Inputs of a decision beyond the outcome.

    `is_past_hold`: a target error buries the envelope. `confirmed_since`: the broker confirmed
    another batch that started well after this one.
    """

    is_past_hold: bool = False
    confirmed_since: bool = False


def decide(
    leased: LeasedEnvelope, outcome: Outcome, route: Route, context: DecisionContext
) -> Decision:
    """Return the transition of an envelope; only `failures` counts against `max_attempts`."""
    match outcome.verdict:
        case Verdict.CONFIRMED:
            return Ack(leased.id)
        case Verdict.UNAVAILABLE:
            return Release(leased.id)
        case Verdict.REJECTED:
            return _bury(leased, outcome, is_failure=True)
        case Verdict.TARGET_FAILED if context.is_past_hold:
            return _bury(leased, outcome, is_failure=False)
        case Verdict.TARGET_FAILED | Verdict.TARGET_UNAVAILABLE:
            return _retry(leased, outcome, route, is_failure=False)
        case Verdict.FAILED:
            return _retry(leased, outcome, route, is_failure=True)
        case Verdict.INDETERMINATE:
            return _retry(leased, outcome, route, is_failure=context.confirmed_since)


def _retry(
    leased: LeasedEnvelope, outcome: Outcome, route: Route, *, is_failure: bool
) -> Retry | Burial:
    is_unsure = outcome.may_be_published
    failures = leased.flight.failures + is_failure
    allowed = leased.content.max_attempts or route.retry.max_attempts
    if is_failure and failures >= allowed:
        return Burial(
            id=leased.id,
            reason=Reason.ATTEMPTS_EXHAUSTED,
            is_failure=True,
            is_unsure=is_unsure,
            error=outcome.error,
        )
    return Retry(
        id=leased.id,
        delay_ms=retry_delay_ms(route.retry, leased.flight.retries),
        is_failure=is_failure,
        is_unsure=is_unsure,
        error=outcome.error,
    )


def _bury(leased: LeasedEnvelope, outcome: Outcome, *, is_failure: bool) -> Burial:
    return Burial(
        id=leased.id,
        reason=outcome.reason,
        is_failure=is_failure,
        is_unsure=False,
        error=outcome.error,
    )


def decide_damaged(damaged: DamagedEnvelope) -> Decision:
    """Bury a damaged envelope as poison; release one that requires a newer duebridge."""
    if damaged.is_too_new:
        return Release(damaged.id)
    error = f"{type(damaged.error).__name__}\n{damaged.error}"
    return Burial(
        id=damaged.id, reason=Reason.POISON, is_failure=False, is_unsure=False, error=error
    )
