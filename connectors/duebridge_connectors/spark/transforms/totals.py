"""The counts of a verdict: ids by outcome and by kind of violation, and how late they came."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge_connectors.spark.transforms.verdict import KINDS

PERCENTS = (0.5, 0.99, 1.0)
_OUTCOMES = ("accepted", "delivered", "dead", "held", "cancelled")


def totals(verdicts: DataFrame) -> DataFrame:
    """Return a row for each route; each row of the verdicts counts for its `ids`."""
    is_recovered = (
        (F.col("attempted") > 0)
        & (F.col("accepted") == 0)
        & (F.col("delivered") + F.col("dead") > 0)
    )
    lives = F.least(F.greatest("accepted", F.lit(1)), "delivered_lives")
    copies = F.greatest(F.col("delivered") - lives, F.lit(0))
    counted = verdicts.groupBy("route").agg(
        *(_ids_where(F.col(name) > 0).alias(name) for name in _OUTCOMES),
        _ids_where(is_recovered).alias("recovered"),
        F.sum(copies).alias("duplicate_copies"),  # of single ids: others have none
        *(_ids_where(F.col(kind)).alias(kind) for kind in KINDS),
        _ids_where(F.size("doubtful") > 0).alias("undetermined"),
    )
    return counted.join(_lateness(verdicts), "route", "left")


def _ids_where(condition: Column) -> Column:
    return F.sum(F.when(condition, F.col("ids")).otherwise(0))


def _lateness(verdicts: DataFrame) -> DataFrame:
    """Return `late_by_ms` of each route: the least that so many percent of its ids do not exceed.

    Rows are counted by lateness first, because ids share few different values.
    """
    came = verdicts.where("late_by_ms is not null").groupBy("route", "late_by_ms")
    of_route = Window.partitionBy("route")
    ranked = came.agg(F.sum("ids").alias("ids")).select(
        *("route", "late_by_ms"),
        F.sum("ids").over(of_route.orderBy("late_by_ms")).alias("rank"),
        F.sum("ids").over(of_route).alias("of"),
    )
    least = (
        F.min(F.when(F.col("rank") >= F.ceil(F.col("of") * share), F.col("late_by_ms")))
        for share in PERCENTS
    )
    return ranked.groupBy("route").agg(F.array(*least).alias("late_by_ms"))
