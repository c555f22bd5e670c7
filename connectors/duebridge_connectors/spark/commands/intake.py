"""`duebridge spark intake`: the records of a Kafka topic, scheduled as they come."""

from typing import Annotated

import typer

from duebridge.cli.exits import finish
from duebridge.cli.output import Output, OutputOption
from duebridge.cli.session import ConfigOption, config_path
from duebridge_connectors.spark.commands import shared


def intake(
    context: typer.Context,
    route: shared.RouteArgument,
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
    column: shared.ColumnOption = None,
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
    rejects: shared.RejectsOption = None,
    max_rejects: shared.MaxRejectsOption = None,
    on_conflict: shared.OnConflictOption = None,
    remember: shared.RememberOption = None,
    rows_per_second: shared.RateOption = None,
    read: shared.KafkaReadOption = None,
    settings: shared.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Schedule every record of a Kafka topic to a route, once.

    Value, key and headers are kept. What was read is in the checkpoint: killed and started again,
    it goes on there, and nothing is lost or scheduled twice. Without --every it ends with what
    the topic has now, for a timer to run. docs/spark/intake.md has the columns for --column.
    """
    columns, read_options = shared.pairs("--column", column), shared.pairs("--read", read)
    options = shared.given_only(
        config=str(config_path(context, config)),
        route=route,
        rejects=rejects,
        max_rejects=max_rejects,
        on_conflict=on_conflict,
        remember=remember,
        rows_per_second=rows_per_second,
    )
    with shared.running("intake", settings, has_kafka=True) as spark:
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
        summary = run_intake(spark, wanted, **shared.told(every), **options)
    shared.show_summary(summary, output)
    finish(is_yes=not summary.rows.rejects and not summary.rows.skipped)
