"""Figures of the report, computed from the journal and the store; all instants are UTC."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.admin.events import GAP

UNITS = {"day": 86_400_000, "hour": 3_600_000}
KINDS = (
    "accepted", "replaced", "delivered", "retried", "dead", "expired", "shunted", "cancelled",
    "rescheduled", "replayed", "dropped", "demoted",
)  # fmt: skip
_MINUTE_MS = 60_000
PERCENTILES = {"lateness_p50_ms": 0.5, "lateness_p90_ms": 0.9, "lateness_p99_ms": 0.99}


def figures(journal: DataFrame, unit: str) -> DataFrame:
    """Return a row for each route and hour or day: counts by kind, lateness, the busiest minute.

    Lateness is the time from due to the store's ack of delivered envelopes, in ms. `repeated` ones
    were delivered by a later attempt than the first, the only ones that can be duplicates.
    """
    at_ms = F.unix_millis("at")
    minutes = (
        journal.where(F.col("kind") != GAP)
        .withColumn("late_ms", at_ms - F.unix_millis("due_at"))
        .withColumn("minute", F.floor(at_ms / _MINUTE_MS))
    )
    return _counted(minutes, unit).join(_busiest(minutes, unit), ["route", "at"], "left")


def _counted(rows: DataFrame, unit: str) -> DataFrame:
    is_delivered = F.col("kind") == "delivered"
    late = F.when(is_delivered, F.col("late_ms"))
    return rows.groupBy("route", _start("at", unit)).agg(
        *(F.count_if(F.col("kind") == kind).alias(kind) for kind in KINDS),
        F.count_if(is_delivered & (F.col("attempt") > 1)).alias("repeated"),
        *(F.percentile_approx(late, share).alias(name) for name, share in PERCENTILES.items()),
        F.max(late).alias("lateness_max_ms"),
    )


def _busiest(rows: DataFrame, unit: str) -> DataFrame:
    of_minute = rows.where("kind = 'delivered'").groupBy("route", "minute").count()
    at = F.timestamp_millis(F.col("minute") * _MINUTE_MS)
    per_unit = of_minute.withColumn("moment", at).groupBy("route", _start("moment", unit))
    return per_unit.agg(F.max("count").alias("busiest_minute"))


def reasons(journal: DataFrame) -> DataFrame:
    """Return the number of deaths for each route, day and reason."""
    dead = journal.where(F.col("kind").isin("dead", "expired"))
    reason = F.coalesce("reason", F.lit("expired"))
    return dead.groupBy("route", _start("at", "day"), reason.alias("reason")).count()


def gaps(journal: DataFrame) -> DataFrame:
    """Return the number of entries that the journal's cap removed unread, for each route."""
    found = journal.where(F.col("kind") == GAP).groupBy("route")
    return found.agg(F.count("*").alias("gaps"), F.sum("lost_entries").alias("lost_entries"))


def forecast(held: DataFrame) -> DataFrame:
    """Return the number of envelopes due, cold ones included, for each route and hour."""
    waiting = held.where(
        F.col("state").isin("pending", "retry", "cold") & F.col("waits_for").isNotNull()
    )
    return waiting.groupBy("route", _start("waits_for", "hour")).agg(F.count("*").alias("due"))


def _start(name: str, unit: str) -> Column:
    """Return the begin of an instant's hour or day in UTC, whatever the session's time zone."""
    size = UNITS[unit]
    return F.timestamp_millis(F.floor(F.unix_millis(name) / size) * size).alias("at")
