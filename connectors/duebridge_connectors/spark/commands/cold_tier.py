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
    """Move envelopes due beyond the route's cold_tier.horizon from the store to Parquet files.

    `duebridge spark hydrate` returns them, and must run more than once per horizon. Cancel and
    reschedule continue to work. After a kill, run it again.
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
    """Return envelopes due within the route's cold_tier.horizon to the store.

    Run it several times per horizon, such as hourly: `duebridge doctor` fails once half of the
    horizon has passed. Refused rows stay cold, and the next run retries them. After a kill, run it
    again.
    """
    options = job.given_options(remember=remember, rows_per_second=rows_per_second)
    with job.job_session("hydrate", settings) as spark:
        from duebridge_connectors.spark.jobs.hydrate import run_hydrate

        path = str(config_path(context, config))
        summary = run_hydrate(spark, config=path, route=route, **options)
    job.show_summary(summary, output)
    finish(is_yes=not summary.left)
