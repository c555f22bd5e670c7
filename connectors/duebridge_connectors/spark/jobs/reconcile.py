"""The job `reconcile`: compares accepted envelopes with their outcomes, and gives a verdict.

    store ─▶ a snapshot ────┐   read first: envelopes that leave it later are found in a broker
    Kafka topics, exports ──┤
    journal, receipts ──────┴─▶ facts ─▶ one row per id ─▶ verdicts ─▶ totals, violations, stories
                                         suspects' stories ──┘  ▲
                                         gaps, clocks: doubts ──┘

Only envelopes accepted within [since, until] are judged; `until` is the start of the job. The store
is asked again for ids that seem lost, because an envelope that changes its state during the read
may be missed.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from tempfile import TemporaryDirectory

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.config.load import load_config
from duebridge.config.models import Config
from duebridge.durations import format_instant, parse_duration_ms
from duebridge.errors import ConfigError
from duebridge.producer import Producer
from duebridge.scheduling.route_scheduler import find_route
from duebridge.store.server.connection import Connection
from duebridge_connectors.spark.files.location import FileLocation, Stores
from duebridge_connectors.spark.jobs.evidence import (
    check_readable,
    journal_of_table,
    read_arrived,
    read_store_journals,
    routes_in_store,
    snapshot_held,
    snapshot_journal,
)
from duebridge_connectors.spark.jobs.verdict_summary import JudgedIds, VerdictSummary
from duebridge_connectors.spark.source.options import StoreOptions
from duebridge_connectors.spark.source.planning import store_address
from duebridge_connectors.spark.transforms.missing_evidence import StoreJournals
from duebridge_connectors.spark.transforms.reconciliation import Reconciliation
from duebridge_connectors.spark.transforms.verdict import Evidence, JudgedPeriod

__all__ = ["Reconciliation", "reconcile_evidence", "run_reconcile"]

MAX_RECHECKED = 1_000  # ids that seem lost; beyond it, a few missed ones do not matter
IN_MOTION = datetime(9000, 1, 1, tzinfo=UTC)  # due instant of a missed envelope: not overdue
STUCK_AFTER = "1m"
FILE = "verdict.html"


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
    clock_skew: str = "0ms",
    out: str | None = None,
    page: str | None = None,
) -> Reconciliation:
    """Judge every envelope accepted by these routes, by default all of the configuration.

    `journal` is a table of the job journal, by default the store's own journal. `receipts` are as
    `facts.receipt_facts` says; `exports` are files of consumers of other brokers than Kafka.
    `clock_skew` is how far the brokers' clocks may be behind the store's. `out` receives
    `violations`, `stories` (the journal of the violating ids) and the page `verdict.html`; `page`
    is another path for the page. Raises `ConfigError`, `StoreError` and `BrokerUnavailable`.
    """
    stuck_ms = parse_duration_ms(stuck_after, "stuck_after")
    late_ms = None if late is None else parse_duration_ms(late, "late")
    skew_ms = parse_duration_ms(clock_skew, "clock_skew")
    settings = load_config(config)
    wanted = [find_route(settings, name) for name in routes or sorted(settings.routes)]
    names = [route.name for route in wanted]
    address = store_address(StoreOptions(config=config), settings)
    check_readable(settings, wanted, exports)
    stores = Stores.of(settings)
    table = stores.place(journal) if journal else None
    page = page or (out and f"{out}/{FILE}")
    page_at = stores.place(page) if page else None
    with address.connect() as connection, _home(out) as home:
        now_ms = address.now_ms()
        _check_period(since_ms, min(until_ms or now_ms, now_ms))
        there = routes_in_store(address, wanted)
        held = snapshot_held(spark, config, there, home)
        has_print = receipts is not None and "fingerprint" in receipts.columns
        came = read_arrived(
            spark, settings, wanted, exports, with_fingerprint=has_print, since_ms=since_ms
        )
        if receipts is not None:
            receipts = receipts.where(F.col("route").isin(names))
        if table:
            rows, read_until = journal_of_table(spark, config, there, table, home)
            rows = rows.where(F.col("route").isin(names))
        else:
            rows, read_until = snapshot_journal(spark, config, there, home), now_ms
        # A table may go on while the job reads: what came after `held` was read is not judged.
        window = JudgedPeriod(
            since_ms,
            min(until_ms or read_until or now_ms, now_ms),
            now_ms - stuck_ms,
            late_ms,
            skew_ms,
        )
        evidence = Evidence(rows, receipts, held, came, is_dated=not exports)
        store = _StoreLookup(settings, connection, read_store_journals(address, wanted))
        return _judge(spark, evidence, window, store, out, page_at)


def _check_period(since_ms: int, until_ms: int) -> None:
    """Raise `ConfigError` for a period without an instant, of which everything holds."""
    if since_ms > until_ms:
        since, until = format_instant(since_ms), format_instant(until_ms)
        raise ConfigError(f"since: expected an instant before the end, {until}; got {since}")


def reconcile_evidence(evidence: Evidence, window: JudgedPeriod) -> Reconciliation:
    """Judge evidence alone, without asking the store or writing anything."""
    with ExitStack() as kept:
        found = JudgedIds(kept, evidence, window).verdicts(evidence)
        return VerdictSummary(kept, found, evidence, window).summary()


class _StoreLookup:
    """Looks up single ids in the store; `journals` are those that it has or had."""

    def __init__(self, config: Config, connection: Connection, journals: StoreJournals) -> None:
        self._producer = Producer(config, connection)
        self.journals = journals

    def has(self, route: str, id: str) -> bool:  # noqa: A002 - the field's public name
        return self._producer.get(route, id) is not None


def _judge(
    spark: SparkSession,
    evidence: Evidence,
    window: JudgedPeriod,
    store: _StoreLookup,
    out: str | None,
    page: FileLocation | None,
) -> Reconciliation:
    with ExitStack() as kept:
        sifted = JudgedIds(kept, evidence, window)
        found = sifted.verdicts(evidence)
        missed = _missed(found, store)
        if missed:
            rows = [(*key, "pending", IN_MOTION, None) for key in missed]
            more = spark.createDataFrame(rows, evidence.held.schema)
            evidence = evidence._replace(held=evidence.held.unionByName(more))
            found = sifted.verdicts(evidence)
        weighed = VerdictSummary(kept, found, evidence, window, store.journals)
        done = msgspec.structs.replace(weighed.summary(), page=page and str(page))
        if out is not None:
            weighed.write(out)
        if page is not None:
            weighed.write_page(done, page)
        return done


def _missed(found: DataFrame, store: _StoreLookup) -> list[tuple[str, str]]:
    """Return the ids that seem lost although the store has them."""
    lost = found.where("lost").select("route", "id").limit(MAX_RECHECKED + 1).collect()
    if len(lost) > MAX_RECHECKED:
        return []
    return [(row.route, row.id) for row in lost if store.has(row.route, row.id)]


@contextmanager
def _home(out: str | None) -> Iterator[str]:
    if out is not None:
        yield f"{out}/read"
        return
    with TemporaryDirectory(prefix="duebridge-reconcile-") as home:
        yield home
