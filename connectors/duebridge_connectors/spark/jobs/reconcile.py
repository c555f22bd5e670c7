"""The job `reconcile`: compares accepted envelopes with their outcomes, and gives a verdict.

    store ─▶ a snapshot ────┐   read first: envelopes that leave it later are found in a broker
    Kafka topics, exports ──┤
    journal, receipts ──────┴─▶ facts ─▶ one row per id ─▶ verdicts ─▶ totals, violations, stories

Only envelopes accepted within [since, until] are judged; `until` is the start of the job. The store
is asked again for ids that seem lost, because an envelope that changes its state during the read
may be missed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.config.load import load_config
from duebridge.config.models import Config
from duebridge.durations import parse_duration_ms
from duebridge.producer import Producer, find_route
from duebridge.store.server.connection import Connection
from duebridge_connectors.spark.jobs.evidence import (
    check_readable,
    read_arrived,
    routes_in_store,
    snapshot_held,
    snapshot_journal,
)
from duebridge_connectors.spark.jobs.journal import read_journal
from duebridge_connectors.spark.jobs.journal_table import JournalTable
from duebridge_connectors.spark.source.options import StoreOptions
from duebridge_connectors.spark.source.planning import store_address
from duebridge_connectors.spark.transforms.facts import scheduled_within
from duebridge_connectors.spark.transforms.verdict import (
    BROKEN,
    KINDS,
    Evidence,
    JudgedPeriod,
    totals,
    verdicts,
    violations,
)

MAX_RECHECKED = 1_000  # ids that seem lost; beyond it, a few missed ones do not matter
IN_MOTION = datetime(9000, 1, 1, tzinfo=UTC)  # due instant of a missed envelope: not overdue
MAX_EXAMPLES = 5
STUCK_AFTER = "1m"


class RouteVerdict(msgspec.Struct, frozen=True):
    """The ids of a route, counted by outcome and by kind of violation."""

    route: str
    accepted: int
    delivered: int
    dead: int
    held: int
    cancelled: int
    recovered: int
    duplicate_copies: int
    lost: int
    early: int
    after_cancel: int
    unexpected: int
    corrupt: int
    stuck: int
    duplicates: int
    in_two_places: int
    late: int
    lateness_p50_ms: int | None
    lateness_p99_ms: int | None
    lateness_max_ms: int | None


class Reconciliation(msgspec.Struct, frozen=True):
    """The verdict; `examples` has some ids, as route/id, of each kind of violation."""

    since_ms: int
    until_ms: int
    holds: bool
    routes: list[RouteVerdict]
    examples: dict[str, list[str]]
    gaps: int
    lost_entries: int

    def __str__(self) -> str:
        """Return the verdict as one line for people."""
        if self.holds:
            line = "The guarantee held: nothing lost, early, after its cancel, corrupt or stuck."
        else:
            told = (f"{kind}: {', '.join(ids)}" for kind, ids in self.examples.items())
            line = f"The guarantee was BROKEN: {'; '.join(told)}"
        if self.gaps:
            line += f" The journal has {self.gaps} gaps: what they hide is judged without it."
        return line


def run_reconcile(
    spark: SparkSession,
    config: str,
    *,
    routes: Sequence[str] = (),
    journal: str | None = None,
    receipts: DataFrame | None = None,
    exports: Sequence[str] = (),
    since_ms: int = 0,
    until_ms: int | None = None,
    stuck_after: str = STUCK_AFTER,
    late: str | None = None,
    out: str | None = None,
) -> Reconciliation:
    """Judge every envelope accepted by these routes, by default all of the configuration.

    `journal` is a table of the job journal, by default the store's own journal. `receipts` are as
    `facts.receipt_facts` says; `exports` are files of consumers of other brokers than Kafka. `out`
    receives `violations` and `stories`, the journal of the violating ids. Raises `ConfigError`,
    `StoreError` and `BrokerUnavailable`.
    """
    settings = load_config(config)
    wanted = [find_route(settings, name) for name in routes or sorted(settings.routes)]
    address = store_address(StoreOptions(config=config), settings)
    check_readable(settings, wanted, exports)
    with address.connect() as connection, _home(out) as home:
        now_ms = address.now_ms()
        there = routes_in_store(address, wanted)
        held = snapshot_held(spark, config, there, home)
        has_print = receipts is not None and "fingerprint" in receipts.columns
        came = read_arrived(spark, settings, wanted, exports, with_fingerprint=has_print)
        rows = (
            read_journal(spark, journal).where(
                F.col("route").isin([route.name for route in wanted])
            )
            if journal
            else snapshot_journal(spark, config, there, home)
        )
        read_until = JournalTable(journal).existing().complete_until_ms if journal else now_ms
        window = JudgedPeriod(
            since_ms,
            until_ms or read_until or now_ms,
            now_ms - parse_duration_ms(stuck_after, "stuck_after"),
            None if late is None else parse_duration_ms(late, "late"),
        )
        held, came = (scheduled_within(of, since_ms, window.until_ms) for of in (held, came))
        evidence = Evidence(rows, receipts, held, came)
        return _judge(spark, evidence, window, _StoreLookup(settings, connection), out)


def reconcile_evidence(evidence: Evidence, window: JudgedPeriod) -> Reconciliation:
    """Judge evidence alone, without asking the store or writing anything."""
    found = verdicts(evidence, window).persist()
    try:
        return _summary(found, evidence.journal, window)
    finally:
        found.unpersist()


class _StoreLookup:
    """Looks up single ids in the store."""

    def __init__(self, config: Config, connection: Connection) -> None:
        self._producer = Producer(config, connection)

    def has(self, route: str, id: str) -> bool:  # noqa: A002 - the field's public name
        return self._producer.get(route, id) is not None


def _judge(
    spark: SparkSession,
    evidence: Evidence,
    window: JudgedPeriod,
    store: _StoreLookup,
    out: str | None,
) -> Reconciliation:
    found = verdicts(evidence, window).persist()
    missed = _missed(found, store)
    if missed:
        found.unpersist()
        rows = [(*key, "pending", IN_MOTION, None) for key in missed]
        more = spark.createDataFrame(rows, evidence.held.schema)
        evidence = evidence._replace(held=evidence.held.unionByName(more))
        found = verdicts(evidence, window).persist()
    done = _summary(found, evidence.journal, window)
    if out is not None:
        _write(found, evidence.journal, out)
    found.unpersist()
    return done


def _missed(found: DataFrame, store: _StoreLookup) -> list[tuple[str, str]]:
    """Return the ids that seem lost although the store has them."""
    lost = found.where("lost").select("route", "id").limit(MAX_RECHECKED + 1).collect()
    if len(lost) > MAX_RECHECKED:
        return []
    return [(row.route, row.id) for row in lost if store.has(row.route, row.id)]


def _summary(found: DataFrame, journal: DataFrame, window: JudgedPeriod) -> Reconciliation:
    rows = totals(found).orderBy("route").collect()
    gaps = journal.where("kind = 'gap'").agg(F.count("*"), F.sum("lost_entries")).first()
    return Reconciliation(
        since_ms=window.since_ms,
        until_ms=window.until_ms,
        holds=not any(row[kind] for row in rows for kind in BROKEN),
        routes=[_route_verdict(row.asDict()) for row in rows],
        examples=_examples(found, [kind for kind in KINDS if any(row[kind] for row in rows)]),
        gaps=gaps[0] if gaps else 0,
        lost_entries=(gaps[1] or 0) if gaps else 0,
    )


def _route_verdict(row: dict[str, Any]) -> RouteVerdict:
    p50, p99, most = row.pop("late_by_ms") or (None, None, None)
    return RouteVerdict(**row, lateness_p50_ms=p50, lateness_p99_ms=p99, lateness_max_ms=most)


def _examples(found: DataFrame, kinds: Sequence[str]) -> dict[str, list[str]]:
    if not kinds:
        return {}
    wrong = violations(found).select("kind", "route", "id")
    some = [wrong.where(F.col("kind") == kind).limit(MAX_EXAMPLES) for kind in kinds]
    rows = reduce(DataFrame.union, some).collect()
    return {
        kind: sorted(f"{row.route}/{row.id}" for row in rows if row.kind == kind) for kind in kinds
    }


def _write(found: DataFrame, journal: DataFrame, out: str) -> None:
    wrong = violations(found)
    wrong.write.mode("overwrite").parquet(f"{out}/violations")
    ids = wrong.select("route", "id").distinct()
    stories = journal.join(F.broadcast(ids), ["route", "id"], "left_semi")
    stories.orderBy("route", "id", "sequence").write.mode("overwrite").parquet(f"{out}/stories")


@contextmanager
def _home(out: str | None) -> Iterator[str]:
    if out is not None:
        yield f"{out}/read"
        return
    with TemporaryDirectory(prefix="duebridge-reconcile-") as home:
        yield home
