"""The verdict of `duebridge.audit` on Spark, for any number of envelopes, in the same words.

Each id is one row. An id that was accepted several times had as many lives: as many deliveries are
lawful, and a delivery is early only before the first due instant.
"""

from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge_connectors.spark.transforms import facts as what
from duebridge_connectors.spark.transforms.facts import (
    arrived_facts,
    held_facts,
    journal_facts,
    receipt_facts,
)

BROKEN = ("lost", "early", "after_cancel", "unexpected", "corrupt", "stuck")
REMARKS = ("duplicates", "in_two_places", "late")  # lawful after a fault, or not promised
KINDS = BROKEN + REMARKS

_DUES = (what.ACCEPTED, what.DUE, what.RECEIPT)
_ENDS = ("delivered", "dead", "held", "cancelled", "excused", "ended")
PERCENTS = (0.5, 0.99, 1.0)


class Evidence(NamedTuple):
    """The rows to judge; the functions of `facts` say which columns they have."""

    journal: DataFrame
    receipts: DataFrame | None
    held: DataFrame
    arrived: DataFrame


class JudgedPeriod(NamedTuple):
    """The envelopes to judge: accepted in [since, until]; stuck if due before `stuck_before_ms`."""

    since_ms: int
    until_ms: int
    stuck_before_ms: int
    late_ms: int | None


def verdicts(evidence: Evidence, window: JudgedPeriod) -> DataFrame:
    """Return a row for each id, with a boolean column for each kind of violation."""
    found = [
        journal_facts(evidence.journal, window.since_ms, window.until_ms),
        held_facts(evidence.held),
        arrived_facts(evidence.arrived),
    ]
    if evidence.receipts is not None:
        found.append(receipt_facts(evidence.receipts))
    return judge(aggregate_lives(found), window.stuck_before_ms, window.late_ms)


def aggregate_lives(all_facts: list[DataFrame]) -> DataFrame:
    """Aggregate facts to one row for each route and id."""
    rows = reduce(DataFrame.unionByName, all_facts)
    one = F.least(_count(what.ACCEPTED, what.RECEIPT), F.lit(1))
    came_back = _count(what.ACCEPTED) - _count(what.DEMOTED)
    return rows.groupBy("route", "id").agg(
        F.greatest(came_back, one).alias("accepted"),
        _count(what.TARGET).alias("delivered"),
        _count(what.DEAD_LETTER, what.HELD_DEAD).alias("dead"),
        _count(what.HELD).alias("held"),
        _count(what.CANCELLED).alias("cancelled"),
        _count(what.EXCUSED).alias("excused"),
        _count(what.ATTEMPTED).alias("attempted"),
        _count(what.ENDED).alias("ended"),
        F.max_by(F.when(_is(*_DUES), F.col("due_ms")), _order()).alias("last_due"),
        F.min(F.when(_is(what.ACCEPTED, what.RECEIPT), F.col("due_ms"))).alias("first_due"),
        F.max(F.when(_is(what.HELD), F.col("due_ms"))).alias("held_due"),
        F.min(F.when(_is(what.TARGET), F.col("at_ms"))).alias("first_at"),
        F.max(F.when(_is(what.RECEIPT), F.col("print"))).alias("sent"),
        F.min(F.when(_arrived(), F.col("print"))).alias("least"),
        F.max(F.when(_arrived(), F.col("print"))).alias("most"),
    )


def judge(rows: DataFrame, stuck_before_ms: int, late_ms: int | None = None) -> DataFrame:
    """Add `due_ms`, `late_by_ms`, and a boolean column for each kind of violation.

    A held envelope is stuck if it was due before `stuck_before_ms`.
    """
    accepted, delivered, dead = F.col("accepted"), F.col("delivered"), F.col("dead")
    is_known = accepted > 0
    once = F.greatest(accepted, F.lit(1))
    rows = rows.withColumn(
        "due_ms",
        F.when(accepted > 1, F.least("first_due", "last_due")).otherwise(F.col("last_due")),
    ).withColumn("late_by_ms", F.when(is_known, F.col("first_at") - F.col("due_ms")))
    accounted = reduce(Column.__add__, map(F.col, _ENDS))
    late = F.lit(False) if late_ms is None else F.col("late_by_ms") > late_ms
    return rows.withColumns(
        {
            "lost": accepted > accounted,
            "early": _is_true(F.col("late_by_ms") < 0),
            "after_cancel": (F.col("cancelled") > 0) & (accepted < 2) & (delivered + dead > 0),
            "unexpected": (delivered + dead > 0) & ~is_known & (F.col("attempted") == 0),
            "corrupt": _is_true(F.least("least", "most") != F.col("sent"))
            | _is_true(F.greatest("least", "most") != F.col("sent")),
            "stuck": (F.col("held") > 0) & _is_true(F.col("held_due") < stuck_before_ms),
            "duplicates": delivered > once,
            "in_two_places": (delivered > 0) & (dead > 0) & (accepted < 2),
            "late": _is_true(late),
        }
    )


def violations(verdicts: DataFrame) -> DataFrame:
    """Return a row for each id and kind of violation, with the counts that explain it."""
    kinds = F.array(*(F.when(F.col(kind), F.lit(kind)) for kind in KINDS))
    return verdicts.where(reduce(Column.__or__, map(F.col, KINDS))).select(
        F.explode(F.array_compact(kinds)).alias("kind"),
        *("route", "id", F.timestamp_millis("due_ms").alias("due_at")),
        *(F.timestamp_millis("first_at").alias("first_arrived_at"), "late_by_ms"),
        *("accepted", "delivered", "dead", "held", "cancelled", "excused"),
    )


def totals(verdicts: DataFrame) -> DataFrame:
    """Return a row for each route: ids counted by outcome and by kind of violation."""
    outcomes = ("accepted", "delivered", "dead", "held", "cancelled")
    counts = {
        **{name: F.count_if(F.col(name) > 0) for name in outcomes},
        "recovered": F.count_if(
            (F.col("attempted") > 0)
            & (F.col("accepted") == 0)
            & (F.col("delivered") + F.col("dead") > 0)
        ),
        "duplicate_copies": F.coalesce(
            F.sum(F.greatest(F.col("delivered") - F.greatest("accepted", F.lit(1)), F.lit(0))),
            F.lit(0),
        ),
    }
    return verdicts.groupBy("route").agg(
        *(column.alias(name) for name, column in counts.items()),
        *(F.count_if(F.col(kind)).alias(kind) for kind in KINDS),
        F.percentile_approx("late_by_ms", PERCENTS, 10_000).alias("late_by_ms"),
    )


def _is(*kinds: int) -> Column:
    return F.col("what").isin(*kinds)


def _arrived() -> Column:
    return _is(what.TARGET, what.DEAD_LETTER)


def _count(*kinds: int) -> Column:
    return F.count_if(_is(*kinds))


def _order() -> Column:
    """Return the order of facts with a due instant, null for others."""
    return F.when(_is(*_DUES), F.col("place"))


def _is_true(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))
