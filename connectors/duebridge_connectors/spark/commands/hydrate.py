"""`duebridge spark hydrate`: cold envelopes come back before they are due."""

import typer

from duebridge.cli.exits import finish
from duebridge.cli.output import Output, OutputOption
from duebridge.cli.session import ConfigOption, config_path
from duebridge_connectors.spark.commands import shared


def hydrate(
    context: typer.Context,
    route: shared.RouteArgument,
    remember: shared.RememberOption = None,
    rows_per_second: shared.RateOption = None,
    settings: shared.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Bring back into the store what is due within the route's cold_tier.horizon.

    Run it several times in each horizon, such as once an hour: `duebridge doctor` fails when half
    of it is used up. What the store refuses stays cold and is tried again by the next run. Killed
    anywhere, it is just started again.
    """
    options = shared.given_only(remember=remember, rows_per_second=rows_per_second)
    with shared.running("hydrate", settings) as spark:
        from duebridge_connectors.spark.jobs.hydrate import run_hydrate

        path = str(config_path(context, config))
        summary = run_hydrate(spark, config=path, route=route, **options)
    shared.show_summary(summary, output)
    finish(is_yes=not summary.left)
