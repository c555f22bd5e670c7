"""`duebridge spark replay`: the dead letters of a Kafka topic, scheduled once more."""

from typing import Annotated

import typer

from duebridge.cli.commands.dead_selection import ReasonOption
from duebridge.cli.exits import finish
from duebridge.cli.output import Output, OutputOption
from duebridge.cli.session import ConfigOption, config_path
from duebridge_connectors.spark.commands import shared


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
    rejects: shared.RejectsOption = None,
    max_rejects: shared.MaxRejectsOption = None,
    remember: Annotated[
        str | None, typer.Option(help="So long after its end a replay is known; by default 7d.")
    ] = None,
    rows_per_second: shared.RateOption = None,
    read: shared.KafkaReadOption = None,
    settings: shared.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Schedule dead letters to the routes that they died on; without --yes a dry run.

    The dry run counts them by route and reason. Nothing is taken out of the topic: a dead letter
    that was replayed is known by its id, so that running it again changes nothing. Columns for
    --where and --column are in docs/spark/replay.md.
    """
    columns, read_options = shared.pairs("--column", column), shared.pairs("--read", read)
    options = shared.given_only(
        config=str(config_path(context, config)),
        rejects=rejects,
        max_rejects=max_rejects,
        remember=remember,
        rows_per_second=rows_per_second,
    )
    with shared.running("replay", settings, has_kafka=True) as spark:
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
    shared.show_summary(summary, output)
    finish(is_yes=summary.is_dry_run or summary.is_complete)
