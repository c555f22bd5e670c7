"""The missing evidence, and the violations it may explain: only evidence breaks the guarantee.

A gap in the journal hides what happened in its span: who was accepted, cancelled or rescheduled
there is not known. So does a journal that was not read, or that a purge removed. A broker's clock
behind the store's makes every message look early.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge_connectors.spark.transforms.facts import WITHIN_A_MS
from duebridge_connectors.spark.transforms.verdict import KINDS

MOST_SKEW_MS = 60_000  # what is earlier than that is no clock's fault
MOST_SPANS = 1_000  # of a shard: each is compared with every entry there
_BEGIN_MS, _END_MS = -(2**63), 2**63 - 1
_SPANS = "blind_spans"
RENEWAL_SKIPS = 2**20  # numbers of a journal, or more: lua/renew.lua
_FEWEST = 3  # messages that show a clock's skew; one may be what is wrong
_SHARD = ("route", "shard")
_HIDDEN_LATER = ("lost", "early", "after_cancel", "misdated")  # an unread entry may explain them


class BlindSpan(NamedTuple):
    """A gap in the journal of a shard: between two instants, in ms.

    None: from the beginning, or to the end. Without `lost_entries` it is not known how many they
    are. A purge removes whole journals of a route: it has no `shard`.
    """

    route: str
    shard: int | None
    lost_entries: int
    after_ms: int | None
    before_ms: int | None

    def overlaps(self, since_ms: int, until_ms: int) -> bool:
        """Tell whether it hides something of [since, until]."""
        is_over = self.before_ms is not None and self.before_ms <= since_ms
        return not is_over and not (self.after_ms is not None and self.after_ms > until_ms)


class StoreJournal(NamedTuple):
    """The journal of a shard as the store has it; `began_ms` is None if its first entry is gone."""

    route: str
    shard: int
    entries: int
    began_ms: int | None


class PurgedRoute(NamedTuple):
    """The removal of a route with its journals."""

    route: str
    at_ms: int


class StoreJournals(NamedTuple):
    """The journals that the store has or had of the judged routes."""

    there: Sequence[StoreJournal] = ()
    purged: Sequence[PurgedRoute] = ()


NO_JOURNALS = StoreJournals()


class BrokerClock(NamedTuple):
    """The lag of the clock of a route's broker behind the store's, as so many messages show."""

    behind_ms: int
    messages: int


class MissingEvidence(NamedTuple):
    """The gaps and clock differences that a verdict must allow for."""

    spans: Sequence[BlindSpan] = ()
    clocks: Mapping[str, BrokerClock] = {}


def blind_spans(journal: DataFrame, *, with_heads: bool = False) -> list[BlindSpan]:
    """Return the spans of the gap rows, in order.

    `with_heads` also those before the first entry of a shard, where a table may have begun late. Of
    a shard with more than `MOST_SPANS` it is one span without ends: any of its entries is in doubt.
    """
    gaps = journal.where("kind = 'gap'").select(
        *_SHARD, "lost_entries", F.col("sequence").alias("first")
    )
    if with_heads:
        both = gaps.unionByName(_heads(journal)).groupBy(*_SHARD, "first")
        gaps = both.agg(F.max("lost_entries").alias("lost_entries"))
    gaps = gaps.localCheckpoint()
    if gaps.isEmpty():
        return []
    counts = gaps.groupBy(*_SHARD).agg(F.count("*").alias("gaps"), F.sum("lost_entries"))
    many = counts.where(F.col("gaps") > MOST_SPANS)
    whole = [BlindSpan(route, shard, lost, None, None) for route, shard, _, lost in many.collect()]
    return [*whole, *_placed(journal, gaps.join(many, [*_SHARD], "left_anti"))]


def _placed(journal: DataFrame, gaps: DataFrame) -> list[BlindSpan]:
    """Return the spans of gaps, between the entries beside them."""
    entries = journal.where("kind <> 'gap'").select(
        *_SHARD, "sequence", F.unix_millis("at").alias("ms")
    )
    placed = entries.join(F.broadcast(gaps), [*_SHARD], "right")
    is_before = F.col("sequence") < F.col("first")
    rows = placed.groupBy(*_SHARD, "first", "lost_entries").agg(
        F.max(F.when(is_before, F.col("ms"))).alias("after_ms"),
        F.min(F.when(~is_before, F.col("ms"))).alias("before_ms"),
    )
    return [
        BlindSpan(row.route, row.shard, row.lost_entries, row.after_ms, row.before_ms)
        for row in rows.orderBy(*_SHARD, "first").collect()
    ]


def _heads(journal: DataFrame) -> DataFrame:
    """Return a gap for each shard whose first row, be it a gap, is not of its first entry."""
    first = journal.groupBy(*_SHARD).agg(F.min("sequence").alias("first"))
    before = F.col("first") - 1
    lost = F.when(before < RENEWAL_SKIPS, before).otherwise(0).alias("lost_entries")
    return first.where("first > 1").select(*_SHARD, lost, F.lit(1).cast("long").alias("first"))


def unread_spans(journal: DataFrame, store: StoreJournals) -> list[BlindSpan]:
    """Return a span for each journal of the store, and each purge, of which the rows know nothing.

    A table of the journal may be of other routes, or have begun at the end of a shard's journal.
    """
    if not (store.there or store.purged):
        return []
    found = journal.groupBy(*_SHARD).agg(F.min(F.unix_millis("at")).alias("ms")).collect()
    first = {(row.route, row.shard): row.ms for row in found}
    oldest = [(route, ms) for (route, _), ms in first.items() if ms is not None]
    unread = [each for each in store.there if (each.route, each.shard) not in first]
    gone = [
        (route, at_ms)
        for route, at_ms in store.purged
        if not any(name == route and ms < at_ms for name, ms in oldest)
    ]
    return [
        *(BlindSpan(each.route, each.shard, each.entries, each.began_ms, None) for each in unread),
        *(BlindSpan(route, None, 0, None, at_ms) for route, at_ms in gone),
    ]


class VerdictOutline(NamedTuple):
    """The verdicts before missing evidence is considered."""

    has_suspects: bool
    has_strangers: bool
    has_lost: bool
    clocks: Mapping[str, BrokerClock]


def outline_of(verdicts: DataFrame) -> VerdictOutline:
    """Return an outline, with the clocks that all messages of a route with early ones show.

    The store notes a confirm after it came, so a message's time that is always so much before that
    of the store's note is by another clock. Without the journal's notes, all must be early alike.
    """
    found = verdicts.groupBy("route").agg(
        F.count_if("is_suspect").alias("suspects"),
        F.count_if("unexpected").alias("strangers"),
        F.count_if("lost").alias("lost"),
        F.count_if("early").alias("early"),
        F.sum(F.when(F.col("late_by_ms").isNotNull(), F.col("ids"))).alias("messages"),
        F.sum("noted").alias("noted"),
        F.min("noted_by_ms").alias("behind"),
        F.max("late_by_ms").alias("latest"),
        F.min("late_by_ms").alias("earliest"),
    )
    rows = found.collect()
    clocks = {row.route: _clock(row.asDict()) for row in rows if row.early}
    return VerdictOutline(
        any(row.suspects for row in rows),
        any(row.strangers for row in rows),
        any(row.lost for row in rows),
        {route: clock for route, clock in clocks.items() if clock is not None},
    )


def _clock(row: Mapping[str, int]) -> BrokerClock | None:
    if row["noted"] >= _FEWEST:
        behind, messages = row["behind"], row["noted"]
    elif row["messages"] >= _FEWEST and row["earliest"] > 2 * row["latest"]:
        behind, messages = -row["earliest"], row["messages"]
    else:
        return None
    return BrokerClock(behind, messages) if 0 < behind <= MOST_SKEW_MS else None


def weigh(verdicts: DataFrame, doubts: MissingEvidence) -> DataFrame:
    """Move the kinds of violation that what is missing may explain to `doubtful`."""
    maybe = {
        kind: condition for kind, condition in _doubted(doubts).items() if condition is not None
    }
    if not maybe:
        return verdicts
    verdicts = _beside_spans(verdicts, doubts.spans)
    named = [F.when(F.col(kind) & condition, F.lit(kind)) for kind, condition in maybe.items()]
    more = F.array_compact(F.array(*named))
    doubtful = verdicts.withColumn("doubtful", F.array_union("doubtful", more))
    certain = {kind: F.col(kind) & ~F.array_contains("doubtful", F.lit(kind)) for kind in maybe}
    return doubtful.withColumns(certain).drop(_SPANS)


def _beside_spans(verdicts: DataFrame, spans: Sequence[BlindSpan]) -> DataFrame:
    """Return verdicts with the spans of their route as a column: hundreds fit no expression."""
    rows = [
        (route, _merged(span for span in spans if span.route == route))
        for route in {span.route for span in spans}
    ]
    column = f"route string, {_SPANS} array<struct<after: bigint, before: bigint>>"
    frame = verdicts.sparkSession.createDataFrame(rows, column)
    return verdicts.join(F.broadcast(frame), "route", "left")


def _merged(spans: Iterable[BlindSpan]) -> list[tuple[int, int]]:
    """Return the instants that spans hide, from and to, those that overlap as one."""
    ends = sorted(
        (
            _BEGIN_MS if span.after_ms is None else span.after_ms,
            _END_MS if span.before_ms is None else span.before_ms,
        )
        for span in spans
    )
    merged: list[tuple[int, int]] = []
    for after, before in ends:
        if merged and after <= merged[-1][1]:
            after, before = merged[-1][0], max(merged.pop()[1], before)
        merged.append((after, before))
    return merged


def _doubted(doubts: MissingEvidence) -> dict[str, Column | None]:
    hidden = _hides_after(_instant("first_begin")) if doubts.spans else None
    by_clock = _any(
        (F.col("route") == route) & (F.col("late_by_ms") >= -clock.behind_ms)
        for route, clock in doubts.clocks.items()
    )
    found: dict[str, Column | None] = dict.fromkeys(_HIDDEN_LATER, hidden)
    found["early"] = _any(each for each in (hidden, by_clock) if each is not None)
    found["unexpected"] = _hides(_instant("last_begin")) if doubts.spans else None
    return {kind: found.get(kind) for kind in KINDS}


def _hides(at_ms: Column) -> Column:
    """Tell whether a life that began at an instant, or nobody knows when, may be in a span."""
    return _some_span(
        lambda span: at_ms.isNull() | (at_ms >= span["after"]) & (at_ms <= span["before"])
    )


def _hides_after(at_ms: Column) -> Column:
    """Tell whether a span may hide something of a life that began at an instant."""
    return _some_span(lambda span: at_ms.isNull() | (at_ms <= span["before"]))


def _some_span(meets: Callable[[Column], Column]) -> Column:
    return F.coalesce(F.exists(_SPANS, meets), F.lit(False))


def _instant(place: str) -> Column:
    return F.floor(F.col(place) / WITHIN_A_MS)


def _any(conditions: Iterable[Column]) -> Column | None:
    found = [F.coalesce(condition, F.lit(False)) for condition in conditions]
    return reduce(Column.__or__, found) if found else None
