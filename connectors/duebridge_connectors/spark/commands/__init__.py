"""`duebridge spark`: the bulk jobs. Spark is imported when one of them starts."""

from collections.abc import Callable
from typing import Any

import typer

from duebridge.cli.lazy import manual
from duebridge_connectors.spark.commands.history import journal, reconcile, report, tidy
from duebridge_connectors.spark.commands.kafka_topics import intake, replay
from duebridge_connectors.spark.commands.schedule import (
    demote,
    hydrate,
    schedule,
    tidy_cold,
)

spark = typer.Typer(
    help="Bulk jobs on Spark: pip install 'duebridge[spark]'.",
    epilog=manual(
        "duebridge spark schedule reminders /data/reminders.parquet",
        no="rows were refused, or a job failed part-way",
    ),
)


def _add(command: Callable[..., None], summary: str, *examples: str, **answers: Any) -> None:
    spark.command(short_help=summary, epilog=manual(*examples, **answers))(command)


_add(
    schedule,
    "Schedule the rows of files or a table.",
    "duebridge spark schedule reminders /data/reminders.parquet --rejects /data/rejects",
    "duebridge spark schedule reminders o.csv --format csv --column 'due_at=timestamp(ships)'",
    no="rows were refused, or the job failed part-way",
)
_add(
    journal,
    "Append the journal to a Delta table.",
    "duebridge spark journal /data/journal",
    "duebridge spark journal /data/journal --every 1m",
    no="the job failed part-way",
)
_add(
    tidy,
    "Merge the small files of a Delta table.",
    "duebridge spark tidy /data/journal",
    no="another run of tidy was at work",
)
_add(
    demote,
    "Move envelopes due far ahead from the store to files.",
    "duebridge spark demote reminders",
    no="the job failed part-way",
)
_add(
    hydrate,
    "Return cold envelopes to the store before they are due.",
    "duebridge spark hydrate reminders",
    no="rows were refused and stay cold, or the job failed part-way",
)
_add(
    tidy_cold,
    "Merge and delete files of a cold tier.",
    "duebridge spark tidy-cold reminders",
    no="the job failed part-way",
)
_add(
    intake,
    "Schedule the records of a Kafka topic.",
    "duebridge spark intake reminders asked --checkpoint /data/asked --delay-header x-delay",
    "duebridge spark intake reminders asked --checkpoint /data/c --column \"delay='15m'\"",
    no="records were refused, or the job failed part-way",
    broker=True,
)
_add(
    replay,
    "Schedule the dead letters of a Kafka topic again.",
    "duebridge spark replay reminders-dlt --reason target_missing",
    "duebridge spark replay reminders-dlt --reason target_missing --spread 2h --yes",
    no="some were looped, damaged or refused, or the job failed part-way",
    broker=True,
)
_add(
    reconcile,
    "Name every lost, duplicate, early, late or corrupt message.",
    "duebridge spark reconcile --since 24h --out /data/verdict",
    "duebridge spark reconcile --journal /data/journal --export /data/billing.jsonl",
    no="the guarantee was broken, or the job failed part-way",
    broker=True,
)
_add(
    report,
    "Write a page of figures and a forecast.",
    "duebridge spark report /data/report --journal /data/journal --since 7d",
    no="the job failed part-way",
)
