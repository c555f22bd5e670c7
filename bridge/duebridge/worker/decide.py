"""Maps the outcome of a delivery to a state transition. Pure functions."""

from typing import NamedTuple

import msgspec

from duebridge.config.models import RetryPolicy, Route
from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.store.wire.leases import DamagedEnvelope, LeasedEnvelope
from duebridge.store.wire.transitions import Burial, Decision, HoldClock, Release, Retry, SetAside
from duebridge.worker.backoff import retry_delay_ms
from duebridge.worker.lanes.targets import PROBE_EVERY_S

SET_ASIDE_MS = 10_000  # at least: the recovery of the target ends the wait earlier
DAMAGED_WAIT_MS = 5000


class RetryRules(NamedTuple):
    """The retry rules of a route; dead letters obey no `max_attempts` and no `hold`."""

    retry: RetryPolicy
    hold_ms: int
    is_letter: bool = False

    @classmethod
    def of(cls, route: Route, *, is_letter: bool = False) -> "RetryRules":
        """Return the rules of a route's deliveries, or of its dead letters."""
        return cls(route.retry, route.on_target_error.hold, is_letter)


class DeliveryContext(NamedTuple):
    """The time and the target's health when the outcome arrived.

    `tag` is the target's. `is_held`: the target failed, and confirmed nothing of the batch.
    `has_answered`: the same part of the target confirmed a batch that started well after this one.
    """

    now_ms: int
    tag: str = ""
    is_held: bool = False
    has_answered: bool = False


def decide(
    leased: LeasedEnvelope, outcome: Outcome, rules: RetryRules, context: DeliveryContext
) -> Decision:
    """Return the transition of an envelope that was not confirmed.

    Only `failures` count against `max_attempts`; only target failures run the clock of `hold`.
    """
    match outcome.verdict:
        case Verdict.REJECTED:
            return _bury(leased.id, outcome, is_failure=True)
        case Verdict.FAILED:
            return _fail(leased, outcome, rules)
        case Verdict.TARGET_FAILED if not rules.is_letter and is_past_hold(
            leased, rules, context.now_ms
        ):
            return _bury(leased.id, outcome, is_failure=False)
        case Verdict.TARGET_FAILED:
            return _wait(leased, outcome, rules, context, "start")
        case Verdict.TARGET_UNAVAILABLE | Verdict.PART_UNAVAILABLE | Verdict.DEFERRED:
            return _wait(leased, outcome, rules, context, "keep")
        case Verdict.INDETERMINATE if context.has_answered:
            return _fail(leased, outcome, rules)
        case Verdict.INDETERMINATE:
            return _wait(leased, outcome, rules, context, "end")
        case _:
            return Release(leased.id)


def is_past_hold(leased: LeasedEnvelope, rules: RetryRules, now_ms: int) -> bool:
    """Whether an envelope has waited for `hold`, so that its next target failure buries it."""
    since = leased.flight.held_since_ms
    return rules.hold_ms == 0 or bool(since and now_ms - since >= rules.hold_ms)


def hold_left_ms(leased: LeasedEnvelope, rules: RetryRules, now_ms: int) -> int:
    """Return ms until the end of `hold`, if its clock runs or starts now."""
    since = leased.flight.held_since_ms or now_ms
    return max(0, since + rules.hold_ms - now_ms)


def set_aside(
    leased: LeasedEnvelope,
    rules: RetryRules,
    context: DeliveryContext,
    clock: HoldClock,
    outcome: Outcome | None,
) -> SetAside:
    """Set an envelope aside for its held target: until `hold` ends, if its clock runs."""
    runs = clock == "start" or (clock == "keep" and leased.flight.held_since_ms > 0)
    left_ms = hold_left_ms(leased, rules, context.now_ms)
    return SetAside(
        id=leased.id,
        delay_ms=left_ms if runs and left_ms else max(left_ms, SET_ASIDE_MS),
        tag=context.tag,
        clock=clock,
        is_unsure=outcome is not None and outcome.may_be_published,
        error="" if outcome is None else outcome.error,
    )


def _wait(
    leased: LeasedEnvelope,
    outcome: Outcome,
    rules: RetryRules,
    context: DeliveryContext,
    clock: HoldClock,
) -> Decision:
    """Wait for the target: set aside if it is held; else this envelope alone backs off."""
    if context.is_held and not rules.is_letter:
        return set_aside(leased, rules, context, clock, outcome)
    delay_ms = round(1000 * PROBE_EVERY_S) if context.is_held else _backoff_ms(leased, rules)
    if clock == "start" and not rules.is_letter:
        delay_ms = min(delay_ms, hold_left_ms(leased, rules, context.now_ms))
    return _retry(leased, outcome, delay_ms, is_failure=False, clock=clock)


def _fail(leased: LeasedEnvelope, outcome: Outcome, rules: RetryRules) -> Decision:
    allowed = leased.content.max_attempts or rules.retry.max_attempts
    if not rules.is_letter and leased.flight.failures + 1 >= allowed:
        exhausted = msgspec.structs.replace(outcome, reason=Reason.ATTEMPTS_EXHAUSTED)
        return _bury(leased.id, exhausted, is_failure=True)
    delay_ms = _backoff_ms(leased, rules)
    return _retry(leased, outcome, delay_ms, is_failure=True, clock="end")


def _backoff_ms(leased: LeasedEnvelope, rules: RetryRules) -> int:
    flight = leased.flight
    return retry_delay_ms(rules.retry, flight.letters if rules.is_letter else flight.retries)


def _retry(
    leased: LeasedEnvelope, outcome: Outcome, delay_ms: int, *, is_failure: bool, clock: HoldClock
) -> Retry:
    return Retry(
        id=leased.id,
        delay_ms=delay_ms,
        is_failure=is_failure,
        is_unsure=outcome.may_be_published,
        error=outcome.error,
        clock=clock,
    )


def _bury(id: str, outcome: Outcome, *, is_failure: bool) -> Burial:  # noqa: A002
    return Burial(
        id=id,
        reason=outcome.reason,
        is_failure=is_failure,
        is_unsure=outcome.may_be_published,
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


def decide_damaged_letter(damaged: DamagedEnvelope, outcome: Outcome) -> Decision:
    """Decide on the unconfirmed dead letter of a damaged envelope."""
    if outcome.verdict is Verdict.UNAVAILABLE:
        return Release(damaged.id)
    if outcome.verdict is Verdict.REJECTED:
        return _bury(damaged.id, outcome, is_failure=False)
    return wait_for_upgrade(damaged.id, outcome.error)


def wait_for_upgrade(id: str, error: str = "") -> Retry:  # noqa: A002 - the public name of the field
    """Delay a dead envelope that this version cannot read or send."""
    return Retry(
        id=id,
        delay_ms=DAMAGED_WAIT_MS,
        is_failure=False,
        is_unsure=False,
        error=error,
        clock="keep",
    )
