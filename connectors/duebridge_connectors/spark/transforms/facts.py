"""Evidence of the store, the journal, receipts and brokers in one narrow form: one fact a row.

`what` says which fact about one id of one route, beside the instants and the hash that belong to
it. Only `route` and `id` are text, so Spark aggregates the rest in place, without sorting.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.audit import fingerprint

ACCEPTED, DUE, CANCELLED, EXCUSED, ENDED = 1, 2, 3, 4, 5
ATTEMPTED, TARGET, DEAD_LETTER, HELD, HELD_DEAD, RECEIPT, DEMOTED = 6, 7, 8, 9, 10, 11, 12

WITHIN_A_MS = 2**22

_BEGINS = ("accepted",)
_DUES = ("replaced", "rescheduled", "replayed")
_ENDS = ("delivered", "shunted")


def journal_facts(journal: DataFrame, since_ms: int, until_ms: int) -> DataFrame:
    """Return the facts of the journal: envelopes accepted in [since, until], and their outcomes.

    A demoted envelope is accepted again when it returns: still one life. A cancel is certain if no
    worker ever held the envelope; after an attempt it may have answered *in_flight*, which only
    excuses the envelope, as a drop does. Envelopes that ended after `until` are not judged: the
    brokers may have been read before.
    """
    kind = F.col("kind")
    what = (
        F.when(kind.isin(*_BEGINS), ACCEPTED)
        .when(kind.isin(*_DUES), DUE)
        .when(kind == "demoted", DEMOTED)
        .when((kind == "cancelled") & (F.coalesce("attempt", F.lit(0)) == 0), CANCELLED)
        .when(kind.isin("cancelled", "dropped"), EXCUSED)
        .when(kind.isin(*_ENDS) & (_ms("at") > until_ms), ENDED)
    )
    order = _order("at", F.col("sequence"))
    rows = _facts(journal, what, at_ms=_ms("at"), due_ms=_ms("due_at"), place=order)
    rows = rows.where("what is not null")
    before = F.col("at_ms") < since_ms
    return rows.where(~((F.col("what") == ACCEPTED) & (before | (F.col("at_ms") > until_ms))))


def receipt_facts(receipts: DataFrame) -> DataFrame:
    """Return the facts of receipts: columns `id route due_at`, optionally `status fingerprint at`.

    `at` orders them; without it they precede the journal. `status` is the answer of the call:
    accepted, duplicate or replaced; cancelled or in_flight, of a cancel; rescheduled; or unknown,
    without an answer. Without the column, all are accepted.
    """
    has = receipts.columns
    status = F.col("status") if "status" in has else F.lit("accepted")
    print_of = F.col("fingerprint") if "fingerprint" in has else F.lit("")
    what = (
        F.when(status.isin("accepted", "duplicate", "replaced"), RECEIPT)
        .when(status == "rescheduled", DUE)
        .when(status == "cancelled", CANCELLED)
        .when(status == "in_flight", EXCUSED)
        .otherwise(ATTEMPTED)
    )
    order = _order("at", F.lit(0)) if "at" in has else None
    return _facts(receipts, what, due_ms=_ms("due_at"), place=order, print_of=print_of)


def held_facts(held: DataFrame) -> DataFrame:
    """Return the facts of held envelopes: columns `route id state waits_for` of the reader.

    `waits_for` (the due instant, or the end of a delay or a lease) counts as the due instant: an
    envelope is stuck if it is still held long after that.
    """
    what = F.when(F.col("state") == "dead", HELD_DEAD).otherwise(HELD)
    return _facts(held, what, due_ms=F.coalesce(_ms("waits_for"), F.lit(0)))


def arrived_facts(arrived: DataFrame) -> DataFrame:
    """Return the facts of messages, as `arrived_in_kafka` and `arrived_in_export` give them."""
    what = F.when(F.col("dead_letter"), DEAD_LETTER).otherwise(TARGET)
    return _facts(arrived, what, at_ms=_ms("at"), print_of=F.col("fingerprint"))


def _facts(
    rows: DataFrame,
    what: Column,
    *,
    at_ms: Column | None = None,
    due_ms: Column | None = None,
    place: Column | None = None,
    print_of: Column | None = None,
) -> DataFrame:
    null = F.lit(None).cast("long")
    columns = {
        "what": what,
        "at_ms": null if at_ms is None else at_ms,
        "due_ms": null if due_ms is None else due_ms,
        "place": F.lit(0).cast("long") if place is None else place,
        "print": null if print_of is None else hashed(print_of),
    }
    return rows.select("route", "id", *(column.alias(name) for name, column in columns.items()))


def hashed(fingerprint: Column) -> Column:
    """Return 64 bits of a fingerprint to tell two apart; null for none."""
    return F.when(fingerprint != "", F.xxhash64(fingerprint))


def _order(at: str, sequence: Column) -> Column:
    """Return the order of an id's facts: the time, then the journal's number."""
    return _ms(at) * WITHIN_A_MS + sequence % WITHIN_A_MS


def _ms(name: str) -> Column:
    return F.unix_millis(F.col(name))


EXPORT = "route STRING, id STRING, at TIMESTAMP"
_OPTIONAL = {"dead_letter": "boolean", "scheduled_at": "timestamp", "fingerprint": "string"}


def arrived_in_kafka(records: DataFrame, *, with_fingerprint: bool) -> DataFrame:
    """Return the messages of target and dead-letter topics: route id at dead_letter scheduled_at.

    `at` is the broker's time with message.timestamp.type=LogAppendTime, else the worker's time of
    publishing. Records without our headers are left out; a damaged record has its route only as a
    dead letter. Fingerprints are those of `duebridge.audit`, computed in Python on request only.
    """
    made = F.udf(_fingerprint, "string", useArrow=True)
    prints = made("value", "key", "headers") if with_fingerprint else F.lit("")
    return records.select(
        F.coalesce(_header("x-route"), _header("x-dlq-route")).alias("route"),
        _header("x-message-id").alias("id"),
        F.col("timestamp").alias("at"),
        F.exists("headers", lambda header: header["key"] == "x-dlq-reason").alias("dead_letter"),
        F.timestamp_millis(_header("x-scheduled-at").try_cast("long")).alias("scheduled_at"),
        prints.alias("fingerprint"),
    ).where("id is not null and route is not null")


def arrived_in_export(rows: DataFrame) -> DataFrame:
    """Return an export of a consumer with the columns of `arrived_in_kafka`.

    It has at least `route id at`; instants are TIMESTAMP or epoch ms.
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
    """Keep messages accepted in [since, until], and those without that instant."""
    at_ms = F.unix_millis("scheduled_at")
    return rows.where(at_ms.isNull() | at_ms.between(since_ms, until_ms))


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
