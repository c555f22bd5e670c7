"""`duebridge spark demote` and `hydrate`: envelopes leave for the cold tier, and return."""

import typer

from duebridge.cli.exits import finish
from duebridge.cli.output import Output, OutputOption
from duebridge.cli.session import ConfigOption, config_path
from duebridge_connectors.spark.commands import job


def demote(
    context: typer.Context,
    route: job.RouteArgument,
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Move what is due beyond the route's cold_tier.horizon out of the store, into Parquet files.

    They come back by `duebridge spark hydrate`, which has to run more often than once in the
    horizon. Cancel and reschedule go on to work. Killed anywhere, it is just started again.
    """
    with job.job_session("demote", settings) as spark:
        from duebridge_connectors.spark.jobs.demote import run_demote

        summary = run_demote(spark, config=str(config_path(context, config)), route=route)
    job.show_summary(summary, output)


def hydrate(
    context: typer.Context,
    route: job.RouteArgument,
    remember: job.RememberOption = None,
    rows_per_second: job.RateOption = None,
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Bring back into the store what is due within the route's cold_tier.horizon.

    Run it several times in each horizon, such as once an hour: `duebridge doctor` fails when half
    of it is used up. What the store refuses stays cold and is tried again by the next run. Killed
    anywhere, it is just started again.
    """
    options = job.given_options(remember=remember, rows_per_second=rows_per_second)
    with job.job_session("hydrate", settings) as spark:
        from duebridge_connectors.spark.jobs.hydrate import run_hydrate

        path = str(config_path(context, config))
        summary = run_hydrate(spark, config=path, route=route, **options)
    job.show_summary(summary, output)
    finish(is_yes=not summary.left)
