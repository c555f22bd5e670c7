"""What each source says of an envelope, in one narrow form: many rows of facts, one row an id.

A row is one fact: `what` of one id of one route, with the instants and the hash that belong to it.
Texts are only in `route` and `id`, so that Spark aggregates the rest in place, without sorting.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

ACCEPTED, DUE, CANCELLED, EXCUSED, ENDED = 1, 2, 3, 4, 5
ATTEMPTED, TARGET, DEAD_LETTER, HELD, HELD_DEAD, RECEIPT, DEMOTED = 6, 7, 8, 9, 10, 11, 12

WITHIN_A_MS = 2**22

_BEGINS = ("accepted",)
_DUES = ("replaced", "rescheduled", "replayed")
_ENDS = ("delivered", "shunted")


def journal_facts(journal: DataFrame, since_ms: int, until_ms: int) -> DataFrame:
    """Return what the journal says: what was accepted in [since, until], and what became of it.

    What was demoted is accepted once more as it comes back: one life all the same. A cancel is
    certain where no worker ever held the envelope; one of a later attempt may have answered
    *in_flight*, and excuses it. What was dropped was dropped on request. What ended behind `until`
    is not judged: the brokers may have been read before.
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
    rows = journal.select(
        "route",
        "id",
        what.alias("what"),
        _ms("at").alias("at_ms"),
        _ms("due_at").alias("due_ms"),
        _place("at", F.col("sequence")),
        _no_print(),
    ).where("what is not null")
    before = F.col("at_ms") < since_ms
    return rows.where(~((F.col("what") == ACCEPTED) & (before | (F.col("at_ms") > until_ms))))


def receipt_facts(receipts: DataFrame) -> DataFrame:
    """Return what a table of receipts says: `id route due_at`, and `status fingerprint at`.

    Their order is that of `at`; without it, what the journal says comes after them. A status says
    what the call answered: accepted, duplicate or replaced; cancelled or in_flight, of a cancel;
    rescheduled; or unknown, where it got no answer. Without a status, all are accepted.
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
    return receipts.select(
        "route",
        "id",
        what.alias("what"),
        F.lit(None).cast("long").alias("at_ms"),
        _ms("due_at").alias("due_ms"),
        _place("at", F.lit(0)) if "at" in has else F.lit(0).cast("long").alias("place"),
        hashed(print_of).alias("print"),
    )


def held_facts(held: DataFrame) -> DataFrame:
    """Return what the store holds: rows of the reader, `route id state waits_for` of them.

    What an envelope waits for (its due instant, the end of a delay or a lease) is its due instant
    here: it is stuck where nothing comes of it after that.
    """
    what = F.when(F.col("state") == "dead", HELD_DEAD).otherwise(HELD)
    return held.select(
        "route",
        "id",
        what.alias("what"),
        F.lit(None).cast("long").alias("at_ms"),
        F.coalesce(_ms("waits_for"), F.lit(0)).alias("due_ms"),
        F.lit(0).cast("long").alias("place"),
        _no_print(),
    )


def arrived_facts(arrived: DataFrame) -> DataFrame:
    """Return what the brokers have: rows as `transforms/arrived.py` says."""
    what = F.when(F.col("dead_letter"), DEAD_LETTER).otherwise(TARGET)
    return arrived.select(
        "route",
        "id",
        what.alias("what"),
        _ms("at").alias("at_ms"),
        F.lit(None).cast("long").alias("due_ms"),
        F.lit(0).cast("long").alias("place"),
        hashed(F.col("fingerprint")).alias("print"),
    )


def hashed(fingerprint: Column) -> Column:
    """Return 64 bits of a fingerprint, null for none: two that differ are told apart by them."""
    return F.when(fingerprint != "", F.xxhash64(fingerprint))


def _place(at: str, sequence: Column) -> Column:
    """Return what orders an id's facts: the time, and within a millisecond the journal's number."""
    return (_ms(at) * WITHIN_A_MS + sequence % WITHIN_A_MS).alias("place")


def _no_print() -> Column:
    return F.lit(None).cast("long").alias("print")


def _ms(name: str) -> Column:
    return F.unix_millis(F.col(name))
