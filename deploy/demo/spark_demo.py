"""`make demo-spark`: a year of reminders waits in the cold tier, and a day of it is delivered.

Every step is a job of `duebridge spark`, as a function. In the end all is reconciled with what
Kafka really has. What is left in one folder: report, verdict, their tables, and the journal.
"""

import json
import secrets
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from duebridge.producer import Producer
from duebridge.store.server.embedded import stop_embedded
from duebridge_connectors.spark.jobs.hydrate import run_hydrate
from duebridge_connectors.spark.jobs.journal import run_journal
from duebridge_connectors.spark.jobs.reconcile import Reconciliation, run_reconcile
from duebridge_connectors.spark.jobs.report import run_report
from duebridge_connectors.spark.jobs.schedule import run_schedule
from duebridge_connectors.spark.jobs.tidy import run_tidy
from duebridge_connectors.spark.session import opened_session
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from crew import Crew
from departures import DAY, departure_of, read_rows
from stage import PARTITIONS, ROOT, kafka_topics, local_brokers, performed

OUT = ROOT / ".services" / "demo-spark"
JARS = [sys.executable, str(ROOT / "deploy" / "local" / "downloads.py"), "spark"]
ROUTE = "boarding"
WORKERS = 2
CANCELLED = 20  # of the day, while they are cold
FIRST = timedelta(minutes=30)  # within the horizon, and so long that hydrate is over by then
BEGINS_IN = timedelta(seconds=3)  # once the workers run: what is moved is punctual
DAY_TAKES = timedelta(seconds=30)
ARRIVES_WITHIN_S = 180.0
LOOK_EVERY_S = 0.5
PAGE = 50_000
TEXT = ("id", "key", "body")
SCHEMA = pa.schema(
    [*((name, pa.string()) for name in TEXT), ("boarding", pa.timestamp("us", "UTC"))]
)
CONFIG = """\
version: 1
store: {{url: "embedded:{home}/store"}}
brokers:
  events: {{type: kafka, bootstrap_servers: ["{bootstrap}"]}}
routes:
  {route}:
    target: {{broker: events, topic: {topic}}}
    max_delay: 500d
    shards: 4
    cold_tier: {{path: {home}/cold, horizon: 7d}}
"""
COUNTS = ("accepted", "delivered", "held", "cancelled", "dead", "duplicates")
BROKEN = (
    "lost", "early", "after_cancel", "unexpected", "corrupt", "stuck", "misplaced", "misdated",
)  # fmt: skip


class Part(NamedTuple):
    """A reminder, and which part of its day is over when it is due."""

    id: str
    of_day: float


def write_year(path: Path) -> int:
    """Write every scheduled departure of 2013 as a row; returns how many there are."""
    reminders = (reminder(number, row) for number, row in enumerate(read_rows()))
    with pq.ParquetWriter(path, SCHEMA) as writer:
        while page := list(islice(reminders, PAGE)):
            writer.write_table(pa.Table.from_pylist(page, SCHEMA))
    return int(pq.read_metadata(path).num_rows)


def reminder(number: int, row: Mapping[str, str]) -> dict[str, object]:
    """Return a departure's reminder; its number in the table makes its id its own."""
    departure = departure_of(row)
    midnight = datetime(int(row["year"]), int(row["month"]), int(row["day"]), tzinfo=UTC)
    flight = departure.carrier + departure.flight
    body = {"flight": flight, "from": departure.origin, "to": departure.destination}
    return {
        "id": f"{midnight:%m%d}-{number:06}-{flight}",
        "key": departure.tail or departure.carrier,
        "body": json.dumps(body),
        "boarding": midnight + timedelta(minutes=departure.boarding_min),
    }


def of_the_day(path: Path) -> Iterator[Part]:
    """Yield the reminders of the day before Thanksgiving."""
    midnight = datetime(*map(int, DAY), tzinfo=UTC)
    within = [("boarding", ">=", midnight), ("boarding", "<", midnight + timedelta(days=1))]
    table = pq.read_table(path, columns=["id", "boarding"], filters=within)
    for row in table.to_pylist():
        yield Part(row["id"], (row["boarding"] - midnight) / timedelta(days=1))


@dataclass(frozen=True)
class Demo:
    """The story, step by step; each says what it did."""

    console: Console
    spark: SparkSession
    home: Path
    topic: str

    @property
    def config(self) -> str:
        """The path of the configuration."""
        return str(self.home / "duebridge.yaml")

    @property
    def year(self) -> Path:
        """The file of all reminders."""
        return self.home / "year.parquet"

    def schedule(self) -> None:
        """Let the year begin tomorrow: its first week waits in the store, all else is cold."""
        count = write_year(self.year)
        self._say(f"{count:,} departures of 2013 as Parquet")
        days = (datetime.now(UTC).date() - date(2013, 1, 1)).days + 1
        columns = {"due_at": f"boarding + INTERVAL {days} DAY"}
        self._say(run_schedule(self.spark, [str(self.year)], columns=columns, **self._to()))

    def bring_a_day_forward(self) -> list[Part]:
        """Move a cold day to the next hour, cancel some of it; returns what is to come."""
        day = list(of_the_day(self.year))
        cancelled, coming = day[:CANCELLED], day[CANCELLED:]
        with Producer.from_config(self.config) as producer:
            answers = Counter(producer.cancel(ROUTE, name) for name, _ in cancelled)
            answers += moved(producer, coming, datetime.now(UTC) + FIRST)
        self._say(
            f"27 November, while it is cold: {len(cancelled)} cancelled, {len(coming)} moved to the"
            f" next hour; the store says {told(answers)}"
        )
        self._say(run_hydrate(self.spark, **self._to()))
        return coming

    def deliver(self, coming: list[Part], bootstrap: str) -> None:
        """Let workers run until all has arrived; raises `TimeoutError`."""
        crew = Crew(Path(self.config))
        crew.start(WORKERS)
        try:
            with Producer.from_config(self.config) as producer:
                answers = moved(producer, coming, datetime.now(UTC) + BEGINS_IN)
            self._say(f"now that it is back: moved to the next half minute; {told(answers)}")
            wait_for(bootstrap, self.topic, len(coming))
        finally:
            crew.stop()
        self._say(f"{len(coming):,} messages are in Kafka")

    def judge(self) -> Reconciliation:
        """Keep the journal as a Delta table, hold everything against it, and write the page."""
        journal, verdict = str(OUT / "journal"), str(OUT / "verdict")
        self._say(run_journal(self.spark, journal, config=self.config))
        self._say(run_tidy(journal))
        found = run_reconcile(self.spark, self.config, journal=journal, out=verdict)
        violations = f"{verdict}/violations"
        sources = {"config": self.config, "journal": journal, "violations": violations}
        self._say(run_report(self.spark, str(OUT), **sources))
        return found

    def _to(self) -> dict[str, str]:
        return {"config": self.config, "route": ROUTE}

    def _say(self, done: object) -> None:
        self.console.print(f"[dim]{datetime.now(UTC):%H:%M:%S}[/]  {done}", soft_wrap=True)


def moved(producer: Producer, day: list[Part], begins: datetime) -> Counter[str]:
    """Let a day be over within `DAY_TAKES`; returns how often the store said what."""
    return Counter(
        producer.reschedule(ROUTE, name, at=begins + part * DAY_TAKES) for name, part in day
    )


def told(answers: Counter[str]) -> str:
    """Return the answers for people."""
    return ", ".join(f"{word} {count:,} times" for word, count in answers.items())


def wait_for(bootstrap: str, topic: str, count: int) -> None:
    """Return once a topic has so many records."""
    give_up_at = time.monotonic() + ARRIVES_WITHIN_S
    places = [TopicPartition(topic, each) for each in range(PARTITIONS)]
    with closing(KafkaConsumer(bootstrap_servers=bootstrap)) as consumer:
        while (found := sum(consumer.end_offsets(places).values())) < count:
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"expected {count} messages in Kafka; got {found}")
            time.sleep(LOOK_EVERY_S)


def verdict_table(found: Reconciliation) -> Table:
    """Return the verdict as rows."""
    table = Table("", *(each.route for each in found.routes), box=None, title="The verdict")
    for name in (*COUNTS, *BROKEN):
        words = name.replace("_", " ").replace("held", "waiting, most of it cold")
        table.add_row(words, *(f"{getattr(each, name):,}" for each in found.routes))
    for name in ("lateness_p50_ms", "lateness_p99_ms"):
        cells = (f"{getattr(each, name)} ms" for each in found.routes)
        table.add_row(name.removesuffix("_ms").replace("_", " "), *cells)
    return table


def play(console: Console, stack: ExitStack) -> bool:
    """Tell the whole story; returns whether the guarantee held."""
    shutil.rmtree(OUT, ignore_errors=True)
    bootstrap = stack.enter_context(local_brokers("kafka"))[0]
    topic = f"boarding-{secrets.token_hex(3)}"
    stack.enter_context(kafka_topics(bootstrap, [topic]))
    home = stack.enter_context(TemporaryDirectory(prefix="duebridge-demo-"))
    stack.callback(stop_embedded, f"{home}/store")
    config = CONFIG.format(home=home, bootstrap=bootstrap, route=ROUTE, topic=topic)
    Path(home, "duebridge.yaml").write_text(config)
    jars = subprocess.check_output(JARS, text=True).strip()
    needed = {"has_kafka": True, "has_delta": True}
    session = opened_session("demo", **needed, more={"spark.jars": jars})
    demo = Demo(console, stack.enter_context(session), Path(home), topic)
    demo.schedule()
    demo.deliver(demo.bring_a_day_forward(), bootstrap)
    found = demo.judge()
    console.print(verdict_table(found))
    style = "bold green" if found.holds else "bold red"
    console.print(str(found), style=style, soft_wrap=True)
    console.print(f"The report: {OUT / 'report.html'}", soft_wrap=True)
    console.print(f"The verdict: {found.page}", soft_wrap=True)
    return found.holds


if __name__ == "__main__":
    sys.exit(performed(play, "Cleaning up: workers, delay store, cold tier, topic."))
