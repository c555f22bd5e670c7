"""Sifts out the ids whose facts tell an ordinary story: nearly all, and nothing is wrong with them.

    facts ─▶ a narrow row per id ─┬─▶ ordinary: counted by shape
                                  └─▶ odd: their facts, for `verdict` to judge in full

`verdict` needs some thirty counts and instants of an id. Nearly every id is accepted once, ends
once, and all that is known of it says the same due instant: which facts there are, the least and
the greatest of their instants prove that. What this cannot prove right is odd.

Ids are told apart by 64 bits of their hash here. Two that share one look like an id with two lives,
which is odd, and the facts of each are judged by themselves.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge_connectors.spark.transforms import facts as what
from duebridge_connectors.spark.transforms.verdict import KINDS, JudgedPeriod

_ODD = 0  # a bit that no fact has: this row alone needs a closer look
_BEGINS = (what.ACCEPTED, what.RECEIPT)
_DEAD = (what.DEAD_LETTER, what.HELD_DEAD)
_CAME = (what.TARGET, *_DEAD)
_CALLED_OFF = (what.CANCELLED, what.CALLED_OFF)
_OFF = (*_CALLED_OFF, what.EXCUSED)
_ENDS = (*_CAME, what.HELD, *_OFF, what.ENDED)
_STRAYS = (what.STRAY, what.STRAY_LETTER, what.ELSEWHERE)
# Facts of several lives, or of parts of them.
_SEVERAL = (what.REPLACED, what.DEMOTED, what.BEFORE, what.LATER, what.RECORDED)
_DATED = (*_BEGINS, what.REPLACED, what.DUE)  # says when it is due, or is odd


def sift(facts: DataFrame, window: JudgedPeriod) -> DataFrame:
    """Return a row for each shape of an ordinary id, and one for each odd id.

    `key` is the odd id's, else null. `ids` have the same facts, as the bits of `kinds`, and came
    late by the same `late_by_ms`; the store noted the confirms of `noted` of them, `noted_by_ms`
    after they came or later. Odd rows have only their key.
    """
    flagged = _flagged(facts, window).withColumns({"is_fine": _is_ordinary(window)})
    fine = F.col("is_fine")
    shaped = flagged.select(
        "route",
        F.when(~fine, F.col("key")).alias("key"),
        F.when(fine, F.col("kinds")).alias("kinds"),
        F.when(fine, F.col("late_by_ms")).alias("late_by_ms"),
        (F.col("acked_at") - F.col("first_at")).alias("noted_by_ms"),
    )
    return shaped.groupBy("route", "key", "kinds", "late_by_ms").agg(
        F.count("*").alias("ids"),
        F.count("noted_by_ms").alias("noted"),
        F.min("noted_by_ms").alias("noted_by_ms"),
    )


def odd_keys(shapes: DataFrame) -> DataFrame:
    """Return the keys of the odd ids."""
    return shapes.where("key is not null").select("key")


def odd_facts(facts: DataFrame, keys: DataFrame) -> DataFrame:
    """Return the facts of odd ids; the keys are sent to every task."""
    keyed = facts.withColumn("key", _key())
    return keyed.join(F.broadcast(keys), "key", "left_semi").drop("key")


def ordinary_verdicts(shapes: DataFrame) -> DataFrame:
    """Return ordinary ids as verdicts: a row for `ids` of them, without the columns of one id."""
    outcomes = {
        "accepted": _has(*_BEGINS),
        "delivered": _has(what.TARGET),
        "dead": _has(*_DEAD),
        "held": _has(what.HELD),
        "cancelled": _has(*_CALLED_OFF, what.RECORDED),
    }
    return shapes.where("key is null").select(
        *("route", "ids", "late_by_ms", "noted", "noted_by_ms"),
        *(has.cast("long").alias(name) for name, has in outcomes.items()),
        *(F.lit(False).alias(kind) for kind in (*KINDS, "is_suspect")),
        F.array().cast("array<string>").alias("doubtful"),
    )


def _flagged(facts: DataFrame, window: JudgedPeriod) -> DataFrame:
    """Return a narrow row for each id, of numbers only: Spark aggregates them in place."""
    rows = facts.select(
        *("route", _key().alias("key"), "what", "at_ms", "print", _bits(window).alias("bits")),
        F.when(~_is(what.HELD, what.ENDED), F.col("due_ms")).alias("due_ms"),
    )
    flagged = rows.groupBy("route", "key").agg(
        F.count("*").alias("facts"),
        F.bit_or("bits").alias("kinds"),
        F.min("due_ms").alias("least_due"),
        F.max("due_ms").alias("most_due"),
        F.min("print").alias("least_print"),
        F.max("print").alias("most_print"),
        F.max(F.when(_is(*_BEGINS), F.col("at_ms"))).alias("begun_at"),
        # what came and was called off as well is odd: one column does for both
        F.min(F.when(_is(what.TARGET, *_OFF), F.col("at_ms"))).alias("ended_at"),
        F.max(F.when(_is(what.ACKED), F.col("at_ms"))).alias("acked_at"),
    )
    first_at = F.when(_has(what.TARGET), F.col("ended_at"))
    late_by = F.when(_has(*_BEGINS), first_at - F.col("least_due"))
    return flagged.withColumns({"first_at": first_at, "late_by_ms": late_by})


def _bits(window: JudgedPeriod) -> Column:
    """Return the bit of a fact; with that of `_ODD` if the fact needs a closer look."""
    is_stuck = _is(what.HELD) & (F.col("due_ms") < window.stuck_before_ms)
    is_odd = is_stuck | (_is(*_DATED) & F.col("due_ms").isNull())
    bit = F.call_function("shiftleft", F.lit(1).cast("long"), F.col("what"))
    return F.when(is_odd, bit + 2**_ODD).otherwise(bit)


def _is_ordinary(window: JudgedPeriod) -> Column:
    """Tell whether no verdict on an id can be other than fine.

    Either nothing of the period began, came or is stuck; or one life began, and ended once.
    """
    is_quiet = ~_has(_ODD, *_BEGINS, what.REPLACED, *_CAME, *_STRAYS)
    is_once = F.bit_count("kinds") == F.col("facts")
    # what was called off before it began was another life
    is_in_order = ~_has(*_OFF) | F.coalesce(F.col("begun_at") < F.col("ended_at"), F.lit(True))
    is_alone = is_once & is_in_order & ~_has(_ODD, *_SEVERAL, *_STRAYS)
    is_one_life = is_alone & _has(*_BEGINS) & _has(*_ENDS)
    is_both = (_has(*_OFF) & _has(*_CAME)) | (_has(what.TARGET) & _has(*_DEAD))
    return is_quiet | (is_one_life & ~is_both & _agrees(window))


def _agrees(window: JudgedPeriod) -> Column:
    """Tell whether all that is known of an id says the same, and that it came in time."""
    late_by = F.col("late_by_ms")
    in_time = [late_by >= -window.skew_ms]
    if window.late_ms is not None:
        in_time.append(late_by <= window.late_ms)
    same_print = F.col("least_print") == F.col("most_print")
    if_known = (F.coalesce(each, F.lit(True)) for each in (*in_time, same_print))
    return reduce(Column.__and__, if_known, F.col("least_due") == F.col("most_due"))


def _key() -> Column:
    return F.xxhash64("route", "id")


def _is(*kinds: int) -> Column:
    return F.col("what").isin(*kinds)


def _has(*kinds: int) -> Column:
    return F.col("kinds").bitwiseAND(F.lit(sum(2**kind for kind in kinds))) != 0
