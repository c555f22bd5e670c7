"""`duebridge spark`: the jobs of the pipeline. Spark itself is loaded once one of them begins."""

import typer

from bridge.cli.manual import manual
from connectors.spark.commands.journal import journal
from connectors.spark.commands.schedule import schedule

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
    short_help="Add the journal to a table of Parquet files.",
    epilog=manual(
        "duebridge spark journal /data/journal",
        "duebridge spark journal /data/journal --every 1m",
        no="the job failed part-way",
    ),
)(journal)
