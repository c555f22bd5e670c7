"""What a broker really has, as rows: `route id at dead_letter scheduled_at fingerprint`.

`at` is the broker's own word where its topics have message.timestamp.type=LogAppendTime; else it is
the worker's clock as it published. A message without our headers is not ours, and left out.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.audit import fingerprint

EXPORT = "route STRING, id STRING, at TIMESTAMP"
_OPTIONAL = {"dead_letter": "boolean", "scheduled_at": "timestamp", "fingerprint": "string"}


def arrived_in_kafka(records: DataFrame, *, with_fingerprint: bool) -> DataFrame:
    """Return the records of target and dead-letter topics, read with their headers.

    A damaged record names its route as a dead letter alone. Fingerprints are `duebridge.audit`'s,
    made in Python: only where there is one to compare with.
    """
    made = F.udf(_fingerprint, "string", useArrow=True)
    prints = made("value", "key", "headers") if with_fingerprint else F.lit("")
    return records.select(
        F.coalesce(_header("x-route"), _header("x-dlq-route")).alias("route"),
        _header("x-message-id").alias("id"),
        F.col("timestamp").alias("at"),
        F.exists("headers", lambda each: each["key"] == "x-dlq-reason").alias("dead_letter"),
        F.timestamp_millis(_header("x-scheduled-at").try_cast("long")).alias("scheduled_at"),
        prints.alias("fingerprint"),
    ).where("id is not null and route is not null")


def arrived_in_export(rows: DataFrame) -> DataFrame:
    """Return what a consumer wrote down: columns `route id at`, and the others where it has them.

    Instants are TIMESTAMP or epoch ms.
    """
    missing = {
        name: F.lit(None).cast(kind) for name, kind in _OPTIONAL.items() if name not in rows.columns
    }
    return rows.withColumns(missing).select(
        "route",
        "id",
        _instant(rows, "at").alias("at"),
        F.coalesce(F.col("dead_letter").cast("boolean"), F.lit(False)).alias("dead_letter"),
        _instant(rows, "scheduled_at").alias("scheduled_at"),
        F.coalesce(F.col("fingerprint"), F.lit("")).alias("fingerprint"),
    )


def scheduled_within(rows: DataFrame, since_ms: int, until_ms: int) -> DataFrame:
    """Keep what was accepted in [since, until], as far as that is known."""
    at_ms = F.unix_millis("scheduled_at")
    return rows.where(at_ms.isNull() | at_ms.between(since_ms, until_ms))


def _instant(rows: DataFrame, name: str) -> Column:
    kind = dict(rows.dtypes).get(name, "timestamp")
    return F.timestamp_millis(name) if kind in ("bigint", "int") else F.to_timestamp(name)


def _header(name: str) -> Column:
    found = F.filter("headers", lambda each: each["key"] == name)
    return F.try_element_at(found, F.lit(1))["value"].cast("string")


def _fingerprint(
    value: bytes | None, key: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None
) -> str:
    return fingerprint(value, key, tuple((name, each) for name, each in headers or ()))
