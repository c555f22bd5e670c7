"""What became of one delivery, and what the publisher concludes from it."""

from kafka import errors as vendor

from duebridge.ports.publisher import CONFIRMED, Outcome, Reason, Verdict
from duebridge_connectors.kafka.errors import TABLE, UNKNOWN

# None, for confirmed, or the error.
Answer = BaseException | None

# The partition is between two leaders, or short of replicas: it may be well again in a moment.
_TEMPORARY = frozenset(
    {
        vendor.LeaderNotAvailableError,
        vendor.NotEnoughReplicasError,
        vendor.NotLeaderForPartitionError,
        vendor.ThrottlingQuotaExceededError,
    }
)


def verdict_of(answer: Answer) -> Verdict:
    """Return the verdict of an answer; for a class that has no row, INDETERMINATE."""
    return Verdict.CONFIRMED if answer is None else _row(answer)[0]


def outcome_of(answer: Answer) -> Outcome:
    """Return an answer as the worker reads it."""
    if answer is None:
        return CONFIRMED
    verdict, reason = _row(answer)
    return Outcome(verdict, reason, type(answer).__name__, str(answer))


def is_temporary(answer: Answer) -> bool:
    """Tell whether another try within the same publish is worth its while."""
    return type(answer) in _TEMPORARY


def may_be_a_neighbours_fault(answer: Answer) -> bool:
    """Tell whether this refuses a whole batch, perhaps for the sake of another record in it."""
    refused = verdict_of(answer) in {Verdict.REJECTED, Verdict.FAILED}
    return refused and not is_temporary(answer)


def _row(error: BaseException) -> tuple[Verdict, Reason]:
    return TABLE.get(type(error), UNKNOWN)
