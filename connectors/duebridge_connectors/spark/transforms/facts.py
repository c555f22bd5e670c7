"""Evidence of the store, the journal, receipts and brokers in one narrow form: one fact a row.

`what` says which fact about one id of one route, beside the instants and the hash that belong to
it. Only `route` and `id` are text, so Spark aggregates the rest in place, without sorting.

A life of an id begins where the store accepts or replaces it, at the instant that its messages
carry as `x-scheduled-at`. Every source is held against the same period by that instant: what began
before it is BEFORE, what began after it LATER; both only explain, and are never judged.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

ACCEPTED, DUE, CANCELLED, EXCUSED, ENDED = 1, 2, 3, 4, 5
ATTEMPTED, TARGET, DEAD_LETTER, HELD, HELD_DEAD, RECEIPT, DEMOTED = 6, 7, 8, 9, 10, 11, 12
REPLACED, KNOWN, BEFORE, LATER, ACKED = 13, 14, 15, 16, 17
STRAY, STRAY_LETTER, ELSEWHERE = 18, 19, 20  # misplaced; the last is of a route not judged
CALLED_OFF, RECORDED = 21, 22  # cancels that receipts tell of: of a life, of what may be cold

WITHIN_A_MS = 2**22
NEVER_MS = 2**41 - 1  # later than every instant, and its place still fits
MARGIN_MS = 3_600_000  # clocks of clients and brokers may differ from the store's by so much

_DUES = ("rescheduled", "replayed")
_ENDS = ("delivered", "shunted")
_TAKEN = ("accepted", "duplicate", "replaced")


def journal_facts(journal: DataFrame, since_ms: int, until_ms: int) -> DataFrame:
    """Return the facts of the journal: envelopes accepted in [since, until], and their outcomes.

    A demoted envelope is accepted again when it returns: still one life. A cancel is certain if no
    worker ever held the envelope; after an attempt it may have answered *in_flight*, which only
    excuses the envelope, as a drop does. Envelopes that ended after `until` are not judged: the
    brokers may have been read before.
    """
    kind, is_after = F.col("kind"), _ms("at") > until_ms
    what = (
        F.when(kind == "accepted", _in_period(_ms("at"), since_ms, until_ms, ACCEPTED))
        .when((kind == "replaced") & is_after, EXCUSED)
        .when(kind == "replaced", _in_period(_ms("at"), since_ms, until_ms, REPLACED))
        .when(kind.isin(*_DUES), DUE)
        .when(kind == "demoted", DEMOTED)
        .when((kind == "cancelled") & (F.coalesce("attempt", F.lit(0)) == 0), CANCELLED)
        .when(kind.isin("cancelled", "dropped"), EXCUSED)
        .when(kind.isin(*_ENDS) & is_after, ENDED)
        .when(kind == "delivered", ACKED)
    )
    order = order_of(_ms("at"), F.col("sequence"))
    due_ms = F.when(kind != "delivered", _ms("due_at"))
    rows = _facts(journal, what, at_ms=_ms("at"), due_ms=due_ms, place=order)
    return rows.where("what is not null")


def receipt_facts(receipts: DataFrame, since_ms: int = 0, until_ms: int = NEVER_MS) -> DataFrame:
    """Return the facts of receipts: columns `id route due_at`, optionally `status fingerprint at`.

    `at` orders them, and says which are of [since, until]; without it they precede the journal,
    and within a period that begins later they only add to what the journal says was accepted.
    `status` is the answer of the call: accepted, duplicate or replaced; cancelled or in_flight, of
    a cancel; rescheduled; recorded, of a reschedule with a due instant, else of a cancel; or
    unknown, without an answer. Without the column, all are accepted. A cancel that may be of a life
    before the period, for want of `at`, only excuses.
    """
    has = receipts.columns
    status = F.col("status") if "status" in has else F.lit("accepted")
    print_of = F.col("fingerprint") if "fingerprint" in has else F.lit("")
    is_moved = (status == "rescheduled") | (status == "recorded") & F.col("due_at").isNotNull()
    dated = _in_period(_ms("at"), since_ms, until_ms, RECEIPT) if "at" in has else None
    undated = F.lit(KNOWN if since_ms else RECEIPT)
    at_ms = _ms("at") if "at" in has else F.lit(None).cast("long")
    is_undated = at_ms.isNull() & F.lit(since_ms > 0)
    what = (
        F.when(status.isin(*_TAKEN), undated if dated is None else F.coalesce(dated, undated))
        .when(is_moved, DUE)
        .when((status == "cancelled") & ~is_undated, CALLED_OFF)
        .when((status == "recorded") & ~is_undated, RECORDED)
        .when(status.isin("cancelled", "recorded", "in_flight"), EXCUSED)
        .otherwise(ATTEMPTED)
    )
    order = order_of(_ms("at"), F.lit(0)) if "at" in has else None
    due_ms = _ms("due_at")
    return _facts(receipts, what, at_ms=at_ms, due_ms=due_ms, place=order, print_of=print_of)


def held_facts(held: DataFrame, since_ms: int = 0, until_ms: int = NEVER_MS) -> DataFrame:
    """Return the facts of held envelopes: columns `route id state waits_for` of the reader.

    `waits_for` (the due instant, or the end of a delay or a lease) counts as the due instant: an
    envelope is stuck if it is still held long after that. `scheduled_at` says of which period.
    """
    what = F.when(F.col("state") == "dead", HELD_DEAD).otherwise(HELD)
    begun = _ms("scheduled_at") if "scheduled_at" in held.columns else None
    if begun is not None:
        what = F.coalesce(_in_period(begun, since_ms, until_ms, what), what)
    due_ms = F.coalesce(_ms("waits_for"), F.lit(0))
    return _facts(held, what, due_ms=due_ms, place=None if begun is None else order_of(begun))


def arrived_facts(arrived: DataFrame, since_ms: int = 0, until_ms: int = NEVER_MS) -> DataFrame:
    """Return the facts of messages, as `arrivals` gives them.

    `due_ms` is that of the header. What has no instant of scheduling, and came well before the
    period, is not of it.
    """
    has = arrived.columns
    what = F.when(F.col("dead_letter"), DEAD_LETTER).otherwise(TARGET)
    if "place" in has:
        stray = F.when(F.col("dead_letter"), STRAY_LETTER).otherwise(STRAY)
        what = F.when(F.col("place") == "stray", stray).otherwise(what)
    begun = _ms("scheduled_at") if "scheduled_at" in has else F.lit(None).cast("long")
    came = F.when(_ms("at") < since_ms - MARGIN_MS, BEFORE).otherwise(what)
    what = F.coalesce(_in_period(begun, since_ms, until_ms, what), came)
    if "place" in has:
        what = F.when(F.col("place") == "elsewhere", ELSEWHERE).otherwise(what)
    due_ms = F.col("header_due_ms") if "header_due_ms" in has else None
    print_of, place = F.col("fingerprint"), order_of(begun)
    return _facts(arrived, what, at_ms=_ms("at"), due_ms=due_ms, place=place, print_of=print_of)


def is_any(*kinds: int) -> Column:
    """Tell whether a fact is one of these."""
    return F.col("what").isin(*kinds)


def only(name: str, *kinds: int) -> Column:
    """Return a column of these facts, null of all others."""
    return F.when(is_any(*kinds), F.col(name))


def _in_period(at_ms: Column, since_ms: int, until_ms: int, what: Column | int) -> Column:
    """Return BEFORE, LATER or the fact itself, by an instant; null without it."""
    return (
        F.when(at_ms < since_ms, BEFORE).when(at_ms > until_ms, LATER).when(at_ms.isNotNull(), what)
    )


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


def order_of(at_ms: Column, sequence: Column | None = None) -> Column:
    """Return the order of an id's facts: the time, then the journal's number."""
    begin = at_ms * WITHIN_A_MS
    return begin if sequence is None else begin + sequence % WITHIN_A_MS


def _ms(name: str) -> Column:
    return F.unix_millis(F.col(name))
