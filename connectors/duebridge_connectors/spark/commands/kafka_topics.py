"""`duebridge spark intake` and `replay`: Kafka records and dead letters become envelopes."""

from typing import Annotated

import typer

from duebridge.cli.dead_options import ReasonOption
from duebridge.cli.exits import finish
from duebridge.cli.output import Output, OutputOption
from duebridge.cli.session import ConfigOption, config_path
from duebridge_connectors.spark.commands import job


def intake(
    context: typer.Context,
    route: job.RouteArgument,
    topic: Annotated[str, typer.Argument(help="The Kafka topic to read.")],
    checkpoint: Annotated[
        str, typer.Option(help="A directory of this intake alone: how far it has come.")
    ],
    broker: Annotated[
        str | None,
        typer.Option(help="The topic's broker; by default that of the route's target."),
    ] = None,
    delay_header: Annotated[
        str | None, typer.Option(help="A header with the delay, from the record's time on: 15m.")
    ] = None,
    due_header: Annotated[
        str | None, typer.Option(help="A header with the due instant, epoch ms.")
    ] = None,
    column: job.ColumnOption = None,
    where: Annotated[
        str | None, typer.Option(help="Only records for which this SQL holds.")
    ] = None,
    start: Annotated[
        str, typer.Option(help="Where a new checkpoint begins: earliest or latest.")
    ] = "earliest",
    every: Annotated[
        str | None,
        typer.Option("--every", "--trigger", help="Go on until Ctrl-C, a batch so often: 10s."),
    ] = None,
    max_offsets: Annotated[
        int, typer.Option("--max-offsets-per-trigger", help="Records in a batch, at most.")
    ] = 1_000_000,
    rejects: job.RejectsOption = None,
    max_rejects: job.MaxRejectsOption = None,
    on_conflict: job.OnConflictOption = None,
    remember: job.RememberOption = None,
    rows_per_second: job.RateOption = None,
    read: job.KafkaReadOption = None,
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Schedule every record of a Kafka topic to a route, once.

    Value, key and headers are kept. What was read is in the checkpoint: killed and started again,
    it goes on there, and nothing is lost or scheduled twice. Without --every it ends with what
    the topic has now, for a timer to run. docs/spark/intake.md has the columns for --column.
    """
    columns, read_options = job.parse_pairs("--column", column), job.parse_pairs("--read", read)
    options = job.given_options(
        config=str(config_path(context, config)),
        route=route,
        rejects=rejects,
        max_rejects=max_rejects,
        on_conflict=on_conflict,
        remember=remember,
        rows_per_second=rows_per_second,
    )
    with job.job_session("intake", settings, has_kafka=True) as spark:
        from duebridge_connectors.spark.jobs.intake import Intake, run_intake

        wanted = Intake(
            topic=topic,
            checkpoint=checkpoint,
            broker=broker,
            columns=columns,
            delay_header=delay_header,
            due_header=due_header,
            where=where,
            start=start,
            every=every,
            max_offsets=max_offsets,
            read_options=read_options,
        )
        summary = run_intake(spark, wanted, **job.progress_options(every), **options)
    job.show_summary(summary, output)
    finish(is_yes=not summary.rows.rejects and not summary.rows.skipped)


def replay(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The dead-letter topic.")],
    reason: ReasonOption = None,
    route: Annotated[
        list[str] | None, typer.Option(help="Dead on this route; may be repeated.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Only dead letters for which this SQL holds.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="A column to repair, and the SQL it is made by: NAME=EXPRESSION."),
    ] = None,
    delay: Annotated[str, typer.Option(help="The first are due after this time from now.")] = "0s",
    spread: Annotated[
        str, typer.Option(help="And the last of them so long later: evenly, such as over 2h.")
    ] = "0s",
    max_replays: Annotated[
        int, typer.Option(help="Leave what was replayed so often already, and died again.")
    ] = 3,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do it; without, only say what would be done.")
    ] = False,
    broker: Annotated[
        str | None,
        typer.Option(help="The topic's broker; by default by the routes' dead_letter."),
    ] = None,
    rejects: job.RejectsOption = None,
    max_rejects: job.MaxRejectsOption = None,
    remember: Annotated[
        str | None, typer.Option(help="So long after its end a replay is known; by default 7d.")
    ] = None,
    rows_per_second: job.RateOption = None,
    read: job.KafkaReadOption = None,
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Schedule dead letters to the routes that they died on; without --yes a dry run.

    The dry run counts them by route and reason. Nothing is taken out of the topic: a dead letter
    that was replayed is known by its id, so that running it again changes nothing. Columns for
    --where and --column are in docs/spark/replay.md.
    """
    columns, read_options = job.parse_pairs("--column", column), job.parse_pairs("--read", read)
    options = job.given_options(
        config=str(config_path(context, config)),
        rejects=rejects,
        max_rejects=max_rejects,
        remember=remember,
        rows_per_second=rows_per_second,
    )
    with job.job_session("replay", settings, has_kafka=True) as spark:
        from duebridge_connectors.spark.jobs.replay import Replay, run_replay

        wanted = Replay(
            topic=topic,
            broker=broker,
            reasons=reason or (),
            routes=route or (),
            where=where,
            columns=columns,
            delay=delay,
            spread=spread,
            max_replays=max_replays,
            read_options=read_options,
        )
        summary = run_replay(spark, wanted, is_dry_run=not yes, **options)
    job.show_summary(summary, output)
    finish(is_yes=summary.is_dry_run or summary.is_complete)
