"""Messages that arrived, whatever read them, with the same columns.

`route id at dead_letter scheduled_at fingerprint header_due_ms place`. `place` is where a message
was found: `right`; `stray`, where its route has no such target; `elsewhere`, a stray of a route
that is not judged.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.audit import fingerprint

_OPTIONAL = {
    "dead_letter": "boolean",
    "scheduled_at": "timestamp",
    "fingerprint": "string",
    "topic": "string",
}


class RoutePlaces(NamedTuple):
    """The topics of a route: a Java regular expression each, None for none."""

    route: str
    is_judged: bool
    targets: str | None
    letters: str | None


def arrived_in_kafka(
    records: DataFrame, *, with_fingerprint: bool, places: Sequence[RoutePlaces] = ()
) -> DataFrame:
    """Return the messages of target and dead-letter topics.

    `at` is the broker's time with message.timestamp.type=LogAppendTime, else the worker's time of
    publishing. Records without our headers are left out; a damaged record has its route only as a
    dead letter. Fingerprints are those of `duebridge.audit`, computed in Python on request only.
    """
    made = F.udf(_fingerprint, "string", useArrow=True)
    prints = made("value", "key", "headers") if with_fingerprint else F.lit("")
    found = records.select(
        F.coalesce(_header("x-route"), _header("x-dlq-route")).alias("route"),
        _header("x-message-id").alias("id"),
        F.col("timestamp").alias("at"),
        F.exists("headers", lambda header: header["key"] == "x-dlq-reason").alias("dead_letter"),
        F.timestamp_millis(_header("x-scheduled-at").try_cast("long")).alias("scheduled_at"),
        prints.alias("fingerprint"),
        # a header that is no number is no due instant of anything
        F.coalesce(_header("x-due-at").try_cast("long"), _unreadable("x-due-at")).alias(
            "header_due_ms"
        ),
        "topic",
    ).where("id is not null and route is not null")
    return _placed(found, places)


def arrived_in_export(rows: DataFrame, places: Sequence[RoutePlaces] = ()) -> DataFrame:
    """Return an export of a consumer.

    It has at least `route id at`; instants are TIMESTAMP or epoch ms. Only with a `topic` is a
    message known to be where it belongs, only with `due_at`, its header, to be due when it should.
    """
    missing = {
        name: F.lit(None).cast(kind) for name, kind in _OPTIONAL.items() if name not in rows.columns
    }
    header = F.unix_millis(_instant(rows, "due_at")) if "due_at" in rows.columns else F.lit(None)
    found = rows.withColumns(missing).select(
        "route",
        "id",
        _instant(rows, "at").alias("at"),
        F.coalesce(F.col("dead_letter").cast("boolean"), F.lit(False)).alias("dead_letter"),
        _instant(rows, "scheduled_at").alias("scheduled_at"),
        F.coalesce(F.col("fingerprint"), F.lit("")).alias("fingerprint"),
        header.cast("long").alias("header_due_ms"),
        "topic",
    )
    return _placed(found, places)


def _placed(found: DataFrame, places: Sequence[RoutePlaces]) -> DataFrame:
    """Say of each message whether it is where it belongs; drop those of others.

    Without `places` all are where they belong, and all are judged.
    """
    if not places:
        return found.withColumn("place", F.lit("right")).drop("topic")
    place: Column = F.lit(None)
    for of in places:
        wrong = F.lit("stray" if of.is_judged else "elsewhere")
        right = F.lit("right") if of.is_judged else F.lit(None)
        place = F.when(
            F.col("route") == of.route, F.when(_belongs(of), right).otherwise(wrong)
        ).otherwise(place)
    return found.withColumn("place", place).where("place is not null").drop("topic")


def _belongs(of: RoutePlaces) -> Column:
    def within(pattern: str | None) -> Column:
        return F.lit(False) if pattern is None else F.col("topic").rlike(f"^(?:{pattern})$")

    is_right = F.when(F.col("dead_letter"), within(of.letters)).otherwise(within(of.targets))
    return F.col("topic").isNull() | is_right


def _unreadable(name: str) -> Column:
    return F.when(_header(name).isNotNull(), F.lit(-1).cast("long"))


def _instant(rows: DataFrame, name: str) -> Column:
    kind = dict(rows.dtypes).get(name, "timestamp")
    return F.timestamp_millis(name) if kind in ("bigint", "int") else F.to_timestamp(name)


def _header(name: str) -> Column:
    found = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(found, F.lit(1))["value"].cast("string")


def _fingerprint(
    value: bytes | None, key: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None
) -> str:
    return fingerprint(value, key, tuple((name, value) for name, value in headers or ()))
