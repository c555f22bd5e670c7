"""`duebridge spark demote`: what is due far ahead leaves the store for files."""

import typer

from duebridge.cli.output import Output, OutputOption
from duebridge.cli.session import ConfigOption, config_path
from duebridge_connectors.spark.commands import shared


def demote(
    context: typer.Context,
    route: shared.RouteArgument,
    settings: shared.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Move what is due beyond the route's cold_tier.horizon out of the store, into Parquet files.

    They come back by `duebridge spark hydrate`, which has to run more often than once in the
    horizon. Cancel and reschedule go on to work. Killed anywhere, it is just started again.
    """
    with shared.running("demote", settings) as spark:
        from duebridge_connectors.spark.jobs.demote import run_demote

        summary = run_demote(spark, config=str(config_path(context, config)), route=route)
    shared.show_summary(summary, output)
