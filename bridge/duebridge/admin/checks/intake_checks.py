"""Checks what the processes that run intakes say of them; `broker_checks` examines the sources."""

from collections.abc import Iterable, Iterator

from duebridge.admin.held import has_started
from duebridge.admin.operator import Operator
from duebridge.config.models import Config
from duebridge.durations import format_ms
from duebridge.ports.checks import Finding, FindingSubject, failure, ok, warning
from duebridge.store.server.connection import Connection
from duebridge.store.workers import IntakeRecord, WorkerRecord

# What waits at the broker has no due time yet. The slowest client takes in some 5,000 a second, so
# this is twenty seconds' work: beyond what a batch, a prefetch and a restart leave behind.
LAG = 100_000
WAITING_MS = 10_000  # a batch is tried each second; a failover of the store takes less

Running = tuple[WorkerRecord, IntakeRecord]


def check_intakes(config: Config, connection: Connection) -> Iterator[Finding]:
    """Yield findings about the configured intakes; none without the right to read the records."""
    if not config.intakes:
        return
    records = Operator(config, connection).workers()
    if records is not None:  # else `check_workers` says so
        for name in config.intakes:
            yield from intake_findings(name, records)


def intake_findings(name: str, records: Iterable[WorkerRecord]) -> list[Finding]:
    """Return the findings of an intake, of all the processes that run it."""
    place = f"intakes.{name}"
    running = [(record, each) for record in records for each in record.intakes if each.name == name]
    if not running:
        text = "no process runs it, so its messages wait at the broker"
        return [warning(FindingSubject.ROUTE, place, text, "start one: duebridge run")]
    faults = [*_down(place, running), *_waiting(place, running), *_lag(place, running)]
    lag = _lag_of(running)
    text = f"processes: {len(running)}, waiting at the broker: {'unknown' if lag is None else lag}"
    return faults or [ok(FindingSubject.ROUTE, place, text)]


def _down(place: str, running: Iterable[Running]) -> Iterator[Finding]:
    for record, intake in running:
        if not intake.is_up and has_started(record):
            text = f"worker {record.host} (pid {record.pid}) does not read it: {intake.error}"
            remedy = "fix the broker or the source; the worker retries by itself"
            yield failure(FindingSubject.BROKER, place, text, remedy)


def _waiting(place: str, running: Iterable[Running]) -> Iterator[Finding]:
    for record, intake in running:
        if intake.is_up and intake.waiting_ms > WAITING_MS:
            text = (
                f"worker {record.host} (pid {record.pid}) has held its batch for"
                f" {format_ms(intake.waiting_ms - intake.waiting_ms % 1000)}: {intake.error}"
            )
            remedy = "fix the store or the dead-letter target; until then the intake stands still"
            yield failure(FindingSubject.ROUTE, place, text, remedy)


def _lag(place: str, running: Iterable[Running]) -> Iterator[Finding]:
    lag = _lag_of(running)
    if lag is not None and lag > LAG:
        text = f"{lag} messages wait at the broker: they become late"
        remedy = "run more of it: duebridge run --only intake:NAME; see docs/runbooks/intake-lag.md"
        yield warning(FindingSubject.ROUTE, place, text, remedy)


def _lag_of(running: Iterable[Running]) -> int | None:
    """Return the number of waiting messages: the sum of the shares that the processes know."""
    known = [each.lag for _, each in running if each.lag is not None]
    return sum(known) if known else None
