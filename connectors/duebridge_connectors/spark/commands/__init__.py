"""`duebridge spark`: the bulk jobs. Spark is imported when one of them starts."""

import typer

from duebridge.cli.manual import manual
from duebridge_connectors.spark.commands.cold_tier import demote, hydrate
from duebridge_connectors.spark.commands.history import journal, reconcile, report
from duebridge_connectors.spark.commands.kafka_topics import intake, replay
from duebridge_connectors.spark.commands.schedule import schedule

spark = typer.Typer(
    help="Bulk jobs on Spark: pip install 'duebridge[spark]'.",
    epilog=manual(
        "duebridge spark schedule reminders /data/reminders.parquet",
        no="rows were refused, or a job failed part-way",
    ),
)
spark.command(
    "schedule",
    short_help="Schedule the rows of files or a table.",
    epilog=manual(
        "duebridge spark schedule reminders /data/reminders.parquet --rejects /data/rejects",
        "duebridge spark schedule reminders o.csv --format csv --column 'due_at=timestamp(ships)'",
        no="rows were refused, or the job failed part-way",
    ),
)(schedule)
spark.command(
    "journal",
    short_help="Append the journal to a table of Parquet files.",
    epilog=manual(
        "duebridge spark journal /data/journal",
        "duebridge spark journal /data/journal --every 1m",
        no="the job failed part-way",
    ),
)(journal)
spark.command(
    "demote",
    short_help="Move envelopes due far ahead from the store to files.",
    epilog=manual("duebridge spark demote reminders", no="the job failed part-way"),
)(demote)
spark.command(
    "hydrate",
    short_help="Return cold envelopes to the store before they are due.",
    epilog=manual(
        "duebridge spark hydrate reminders",
        no="rows were refused and stay cold, or the job failed part-way",
    ),
)(hydrate)
spark.command(
    "intake",
    short_help="Schedule the records of a Kafka topic.",
    epilog=manual(
        "duebridge spark intake reminders asked --checkpoint /data/asked --delay-header x-delay",
        "duebridge spark intake reminders asked --checkpoint /data/c --column \"delay='15m'\"",
        no="records were refused, or the job failed part-way",
        broker=True,
    ),
)(intake)
spark.command(
    "replay",
    short_help="Schedule the dead letters of a Kafka topic again.",
    epilog=manual(
        "duebridge spark replay reminders-dlt --reason target_missing",
        "duebridge spark replay reminders-dlt --reason target_missing --spread 2h --yes",
        no="some were looped, damaged or refused, or the job failed part-way",
        broker=True,
    ),
)(replay)
spark.command(
    "reconcile",
    short_help="Name every lost, duplicate, early, late or corrupt message.",
    epilog=manual(
        "duebridge spark reconcile --since 24h --out /data/verdict",
        "duebridge spark reconcile --journal /data/journal --export /data/billing.jsonl",
        no="the guarantee was broken, or the job failed part-way",
        broker=True,
    ),
)(reconcile)
spark.command(
    "report",
    short_help="Write a page of figures and a forecast.",
    epilog=manual(
        "duebridge spark report /data/report --journal /data/journal --since 7d",
        no="the job failed part-way",
    ),
)(report)
