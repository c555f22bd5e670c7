"""`duebridge spark intake` and `replay`: Kafka records and dead letters become envelopes."""

from typing import Annotated

import typer

from duebridge.cli.commands.dead.selection import complete_reason
from duebridge.cli.exits import finish
from duebridge.cli.output import Output, OutputOption
from duebridge.cli.session import ConfigOption, actor_name
from duebridge_connectors.spark.commands import job


def intake(
    context: typer.Context,
    route: job.RouteArgument,
    topic: Annotated[str, typer.Argument(help="The Kafka topic to read.")],
    checkpoint: Annotated[
        str, typer.Option(help="Directory for the progress of this intake alone.")
    ],
    broker: Annotated[
        str | None, typer.Option(help="Broker of the topic; by default that of the route's target.")
    ] = None,
    delay_header: Annotated[
        str | None, typer.Option(help="Header with a delay after the record's time, such as 15m.")
    ] = None,
    due_header: Annotated[
        str | None, typer.Option(help="Header with the due instant, epoch ms.")
    ] = None,
    columns: job.ColumnOption = None,
    where: job.WhereOption = None,
    start: Annotated[
        str, typer.Option(help="Where a new checkpoint starts: earliest or latest.")
    ] = "earliest",
    every: Annotated[
        str | None,
        typer.Option(
            "--every", "--trigger", help="Run until Ctrl-C, with a batch at this interval: 10s."
        ),
    ] = None,
    max_offsets: Annotated[
        int, typer.Option("--max-offsets-per-trigger", help="Most records in a batch.")
    ] = 1_000_000,
    rejects: job.RejectsOption = None,
    max_rejects: job.MaxRejectsOption = None,
    on_conflict: job.OnConflictOption = None,
    remember: job.RememberOption = None,
    rows_per_second: job.RateOption = None,
    read_options: job.KafkaReadOption = None,
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Schedule every record of a Kafka topic to a route, once.

    Value, key and headers are kept. The checkpoint holds the position in the topic: a further run
    continues there, and nothing is lost or scheduled twice. Without --every the job stops at the
    present end of the topic. docs/spark/intake.md has the columns for --column.
    """
    write, wanted = job.given_options(locals())
    with job.job_session(
        "intake",
        settings,
        has_kafka=True,
        config=write["config"],
        route=route,
        places=[checkpoint],
    ) as spark:
        from duebridge_connectors.spark.jobs.intake import Intake, run_intake

        progress = job.progress_options(every)
        summary = run_intake(spark, Intake(**wanted), **progress, **write)
    job.show_summary(summary, output)
    finish(is_yes=not summary.rows.rejects and not summary.rows.skipped)


def replay(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The dead-letter topic.")],
    reasons: Annotated[
        list[str] | None,
        typer.Option(
            "--reason",
            help="Only dead letters of this reason, such as too_large; repeatable.",
            autocompletion=complete_reason,
        ),
    ] = None,
    routes: Annotated[
        list[str] | None,
        typer.Option("--route", help="Only dead letters of this route; repeatable."),
    ] = None,
    where: job.WhereOption = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", help="A column to repair, SQL over the letters: NAME=EXPRESSION."),
    ] = None,
    delay: Annotated[str, typer.Option(help="Delay of the first dead letters.")] = "0s",
    spread: Annotated[
        str, typer.Option(help="Period to spread them evenly over, such as 2h.")
    ] = "0s",
    max_replays: Annotated[
        int, typer.Option(help="Skip dead letters that were replayed this often.")
    ] = 3,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Replay; without it, a dry run.")
    ] = False,
    broker: Annotated[
        str | None,
        typer.Option(help="Broker of the topic; by default that of the routes' dead_letter."),
    ] = None,
    rejects: job.RejectsOption = None,
    max_rejects: job.MaxRejectsOption = None,
    remember: Annotated[
        str | None,
        typer.Option(help="How long a replay is remembered after its end; by default 7d."),
    ] = None,
    rows_per_second: job.RateOption = None,
    read_options: job.KafkaReadOption = None,
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Schedule dead letters to their routes again; without --yes a dry run.

    The dry run counts them by route and reason. The topic keeps its records, and the store
    remembers the ids of replayed ones, so running the job again changes nothing.
    docs/spark/replay.md has the columns for --where and --column.
    """
    write, wanted = job.given_options(locals())
    write["actor"] = actor_name()
    is_dry_run = not wanted.pop("yes")
    with job.job_session("replay", settings, has_kafka=True) as spark:
        from duebridge_connectors.spark.jobs.replay import Replay, run_replay

        summary = run_replay(spark, Replay(**wanted), is_dry_run=is_dry_run, **write)
    job.show_summary(summary, output)
    finish(is_yes=summary.is_dry_run or summary.is_complete)
