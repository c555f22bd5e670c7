"""The verdict of `duebridge.audit` on Spark, for any number of envelopes, in the same words.

Each id is one row. An id that was accepted several times had as many lives: as many deliveries are
lawful, and a delivery is early only before the earliest instant that one of them was due at, moves
included. What became of its lives before and after the period does not count (`own_turns`). Where
that is too coarse, the id is a suspect, and `id_histories` judges its journal event by event.
"""

from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.audit import BROKEN
from duebridge_connectors.spark.transforms import facts as what
from duebridge_connectors.spark.transforms.facts import (
    arrived_facts,
    held_facts,
    is_any,
    journal_facts,
    only,
    receipt_facts,
)
from duebridge_connectors.spark.transforms.own_turns import turn_aggregates, with_own_turns

REMARKS = ("duplicates", "in_two_places", "late")  # lawful after a fault, or not promised
KINDS = (*BROKEN, *REMARKS)

_BEGINS = (what.ACCEPTED, what.REPLACED, what.RECEIPT)
_ANY_DUES = (*_BEGINS, what.DUE, what.DEMOTED, what.KNOWN, what.ATTEMPTED)
_TARGETS, _LETTERS = (what.TARGET, what.STRAY), (what.DEAD_LETTER, what.STRAY_LETTER)
_ARRIVED = (*_TARGETS, *_LETTERS)
_ENDS = (
    *("delivered_lives", "dead_lives", "held"),
    *("own_cancels", "called_off", "own_excuses", "own_ended"),
)


class Evidence(NamedTuple):
    """The rows to judge; the functions of `facts` say which columns they have.

    If it `is_dated`, every message says when it was scheduled: the journal before is not needed.
    """

    journal: DataFrame
    receipts: DataFrame | None
    held: DataFrame
    arrived: DataFrame
    is_dated: bool = False


class JudgedPeriod(NamedTuple):
    """The envelopes to judge: accepted in [since, until]; stuck if due before `stuck_before_ms`.

    The brokers' clocks may be `skew_ms` behind the store's.
    """

    since_ms: int
    until_ms: int
    stuck_before_ms: int
    late_ms: int | None
    skew_ms: int = 0


def facts_of(evidence: Evidence, window: JudgedPeriod) -> DataFrame:
    """Return all evidence as facts, of a period."""
    period = window.since_ms, window.until_ms
    found = [
        journal_facts(_needed(evidence, window.since_ms), *period),
        held_facts(evidence.held, *period),
        arrived_facts(evidence.arrived, *period),
    ]
    if evidence.receipts is not None:
        found.append(receipt_facts(evidence.receipts, *period))
    return reduce(DataFrame.unionByName, found)


def verdicts_of(facts: DataFrame, window: JudgedPeriod) -> DataFrame:
    """Return a row for each id of the facts, with a boolean column for each kind of violation."""
    lives = aggregate_lives(facts)
    return judge(lives, window.stuck_before_ms, window.late_ms, window.skew_ms)


def _needed(evidence: Evidence, since_ms: int) -> DataFrame:
    """Leave out what tells only of lives that ended before the period."""
    if not evidence.is_dated or since_ms <= what.MARGIN_MS:
        return evidence.journal
    return evidence.journal.where(
        F.col("at") >= F.timestamp_millis(F.lit(since_ms - what.MARGIN_MS))
    )


def aggregate_lives(facts: DataFrame) -> DataFrame:
    """Aggregate facts to one row for each route and id."""
    rows = facts.groupBy("route", "id").agg(
        *_counts(),
        *turn_aggregates(),
        F.min(only("due_ms", *_ANY_DUES)).alias("least_due"),
        F.max(only("due_ms", *_ANY_DUES)).alias("most_due"),
        F.min(only("due_ms", *_ARRIVED)).alias("least_header"),
        F.max(only("due_ms", *_ARRIVED)).alias("most_header"),
        F.max(only("due_ms", what.HELD)).alias("held_due"),
        F.min(only("at_ms", *_TARGETS)).alias("first_at"),
        F.max(only("at_ms", what.ACKED)).alias("acked_at"),
        F.min(only("place", *_BEGINS)).alias("first_begin"),
        F.max(only("place", *_ARRIVED, what.HELD_DEAD)).alias("last_begin"),
        F.max(only("print", what.RECEIPT, what.KNOWN)).alias("sent"),
        F.min(only("print", *_ARRIVED)).alias("least"),
        F.max(only("print", *_ARRIVED)).alias("most"),
        _lives(*_TARGETS).alias("delivered_lives"),
        _lives(*_LETTERS, what.HELD_DEAD).alias("dead_lives"),
    )
    lives = F.greatest(F.col("accepts") - F.col("returned"), "begun")
    return with_own_turns(rows).withColumn("accepted", lives).drop("accepts", "begun")


def _counts() -> list[Column]:
    """Count the known facts of each kind; receipts and journal may report the same life.

    An id that the store accepted only outside of the period is not judged by a client's clock.
    """
    elsewhen = (_count(what.BEFORE, what.LATER) > 0) & (_count(what.ACCEPTED, what.REPLACED) == 0)
    begun = F.when(elsewhen, F.lit(0)).otherwise(F.least(_count(*_BEGINS), F.lit(1)))
    cancelled = _count(what.CANCELLED, what.CALLED_OFF, what.RECORDED)
    return [
        _count(what.ACCEPTED).alias("accepts"),
        begun.alias("begun"),
        _count(*_TARGETS).alias("delivered"),
        _count(*_LETTERS, what.HELD_DEAD).alias("dead"),
        _count(what.HELD).alias("held"),
        cancelled.alias("cancelled"),
        _count(what.CANCELLED).alias("cancels"),
        _count(what.EXCUSED).alias("excused"),
        _count(what.ATTEMPTED).alias("attempted"),
        _count(what.DEMOTED).alias("demoted"),
        _count(what.KNOWN).alias("known"),
        _count(what.BEFORE).alias("before"),
        _count(what.LATER).alias("later"),
        _count(what.STRAY, what.STRAY_LETTER, what.ELSEWHERE).alias("strays"),
    ]


def _lives(*kinds: int) -> Column:
    """Count the lives that came: messages of one life have one beginning, if they say it."""
    known = F.collect_set(only("place", *kinds))
    return F.size(known) + F.count_if(is_any(*kinds) & F.col("place").isNull())


def judge(
    rows: DataFrame, stuck_before_ms: int, late_ms: int | None = None, skew_ms: int = 0
) -> DataFrame:
    """Add `due_ms`, `late_by_ms`, and a boolean column for each kind of violation.

    A held envelope is stuck if it was due before `stuck_before_ms`. `is_suspect` ids need a reading
    of their story. `doubtful` is an array of the kinds that are not certain, empty here. `ids` is
    how many a row is about. If the confirm of a single delivery is `noted`, it was so `noted_by_ms`
    after the message came.
    """
    accepted, delivered, dead = F.col("accepted"), F.col("delivered"), F.col("dead")
    is_known = accepted > 0
    once = F.greatest(accepted, F.lit(1))
    rows = rows.withColumn(
        "due_ms", F.when(accepted > 1, F.col("least_due")).otherwise(F.col("last_due"))
    ).withColumn("late_by_ms", F.when(is_known, F.col("first_at") - F.col("due_ms")))
    is_single = (delivered == 1) & (accepted == 1)
    noted_by = F.when(is_single, F.col("acked_at") - F.col("first_at"))
    late = F.lit(False) if late_ms is None else F.col("late_by_ms") > late_ms
    return rows.withColumns(
        {
            "lost": accepted > _accounted(),
            "early": _is_true(F.col("late_by_ms") < -skew_ms),
            "after_cancel": _is_called_off() & ~_has_lives() & (delivered + dead > 0),
            "unexpected": (delivered + dead > 0) & ~is_known & _is_unheard_of(),
            "corrupt": _is_true(F.least("least", "most") != F.col("sent"))
            | _is_true(F.greatest("least", "most") != F.col("sent")),
            "stuck": (F.col("held") > 0) & _is_true(F.col("held_due") < stuck_before_ms),
            "misplaced": F.col("strays") > 0,
            "misdated": is_known & (_is_no_due("least_header") | _is_no_due("most_header")),
            "duplicates": delivered > F.least(once, "delivered_lives"),
            "in_two_places": (delivered > 0) & (dead > 0) & (accepted < 2),
            "late": _is_true(late),
            "ids": F.lit(1),
            "noted_by_ms": noted_by,
            "noted": noted_by.isNotNull().cast("int"),
            "is_suspect": (delivered + dead > 0) & (_may_be_revoked() | _has_dues()),
            "doubtful": F.array().cast("array<string>"),
        }
    )


def _accounted() -> Column:
    """Count the ends of an id; a cold one that returns after the period begins a later life.

    A second copy of one life is no end of another.
    """
    ends = reduce(Column.__add__, map(F.col, _ENDS))
    return ends + F.when(F.col("is_cold"), F.col("later")).otherwise(F.lit(0))


def _has_lives() -> Column:
    return (F.col("accepted") > 1) | (F.col("demoted") > 0)


def _is_called_off() -> Column:
    """Tell whether a cancel ended a life of the period."""
    return (F.col("own_cancels") > 0) | F.col("is_told")


def _may_be_revoked() -> Column:
    """Tell whether a cancel, or a schedule over a cold row, ended one of several lives.

    A cancel of a life outside of the period says that there are several.
    """
    is_of_another = F.col("cancels") > F.col("own_cancels")
    is_cancelled = (F.col("cancelled") > 0) & (_has_lives() | is_of_another)
    is_untold = F.col("is_maybe_told") & (F.col("own_cancels") + F.col("own_excuses") == 0)
    return is_cancelled | is_untold | F.col("was_cold") & (F.col("accepted") > 1)


def _has_dues() -> Column:
    """Tell whether a header that seems wrong may be one of several due instants."""
    seems_wrong = _is_no_due("least_header") | _is_no_due("most_header")
    return seems_wrong & (F.col("least_due") < F.col("most_due"))


def _is_unheard_of() -> Column:
    is_of_period = F.col("last_begin").isNotNull()
    of_another = (F.col("before") > 0) & ~is_of_period
    return (F.col("attempted") == 0) & (F.col("known") == 0) & ~of_another


def _is_no_due(header: str) -> Column:
    """Tell whether a header is none of the first, last and outermost due instants."""
    dues = ("last_due", "least_due", "most_due")
    return _is_true(reduce(Column.__and__, (F.col(header) != F.col(due) for due in dues)))


def violations(verdicts: DataFrame) -> DataFrame:
    """Return a row for each id and kind of violation, with the counts that explain it.

    A violation is certain unless missing evidence may explain it: see `missing_evidence`.
    """
    certain = F.array_compact(F.array(*(F.when(F.col(kind), F.lit(kind)) for kind in KINDS)))
    kinds = F.concat(certain, F.col("doubtful"))
    return (
        verdicts.where(F.size(kinds) > 0)
        .select(
            F.explode(kinds).alias("kind"),
            *("route", "id", F.timestamp_millis("due_ms").alias("due_at")),
            *(F.timestamp_millis("first_at").alias("first_arrived_at"), "late_by_ms"),
            *("accepted", "delivered", "dead", "held", "cancelled", "excused"),
            "doubtful",
        )
        .withColumns({"is_certain": ~F.array_contains("doubtful", F.col("kind"))})
        .drop("doubtful")
    )


def some_of_each_kind(wrong: DataFrame, most: int) -> DataFrame:
    """Return the first violations of each kind, certain and in doubt, by route and id."""
    kind = Window.partitionBy("kind", "is_certain").orderBy("route", "id")
    numbered = wrong.withColumn("number", F.row_number().over(kind))
    return numbered.where(F.col("number") <= most).drop("number")


def _count(*kinds: int) -> Column:
    return F.count_if(is_any(*kinds))


def _is_true(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))
