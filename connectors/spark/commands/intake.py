"""`duebridge spark intake`: the records of a Kafka topic, scheduled as they come."""

from typing import Annotated

import typer

from bridge.cli.exits import finish
from bridge.cli.output import Output, OutputOption
from bridge.cli.session import ConfigOption, config_path
from connectors.spark.commands.shared import (
    MaxRejectsOption,
    OnConflictOption,
    RateOption,
    RejectsOption,
    RememberOption,
    RouteArgument,
    SettingOption,
    given_only,
    pairs,
    running,
    show_summary,
    told,
)


def intake(
    context: typer.Context,
    route: RouteArgument,
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
    column: Annotated[
        list[str] | None,
        typer.Option(help="A column of the envelope, and the SQL it is made by: NAME=EXPRESSION."),
    ] = None,
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
    rejects: RejectsOption = None,
    max_rejects: MaxRejectsOption = None,
    on_conflict: OnConflictOption = None,
    remember: RememberOption = None,
    rows_per_second: RateOption = None,
    read: Annotated[
        list[str] | None, typer.Option(help="An option of Spark's Kafka source: NAME=VALUE.")
    ] = None,
    settings: SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Schedule every record of a Kafka topic to a route, once.

    Value, key and headers are kept. What was read is in the checkpoint: killed and started again,
    it goes on there, and nothing is lost or scheduled twice. Without --every it ends with what
    the topic has now, for a timer to run. docs/spark/intake.md has the columns for --column.
    """
    columns, read_options = pairs("--column", column), pairs("--read", read)
    options = given_only(
        config=str(config_path(context, config)),
        route=route,
        rejects=rejects,
        max_rejects=max_rejects,
        on_conflict=on_conflict,
        remember=remember,
        rows_per_second=rows_per_second,
    )
    with running("intake", settings, has_kafka=True) as spark:
        from connectors.spark.jobs.intake import Intake, run_intake

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
        summary = run_intake(spark, wanted, **told(every), **options)
    show_summary(summary, output)
    finish(is_yes=not summary.rows.rejects and not summary.rows.skipped)
