"""`duebridge spark report`: what happened and what is to come, as a page and as Parquet."""

from typing import Annotated

import typer

from duebridge.cli.output import Output, OutputOption
from duebridge.cli.session import ConfigOption, config_path
from duebridge_connectors.spark.commands import shared


def report(
    context: typer.Context,
    out: Annotated[str, typer.Argument(help="Directory for the page and the Parquet files.")],
    route: Annotated[
        list[str] | None, typer.Option(help="A route to report on; all of them if not given.")
    ] = None,
    journal: Annotated[
        str | None, typer.Option(help="A table of the job journal; the store's own if not given.")
    ] = None,
    violations: Annotated[
        str | None,
        typer.Option(help="OUT/violations of the job reconcile: only it knows of duplicates."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="What happened since: a time ago (7d), or an instant.")
    ] = None,
    settings: shared.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Write OUT/report.html: lateness, throughput, retries, dead letters, and what falls due.

    The page needs no network and runs no script; it has counts, times, routes and reasons, and no
    id, body or header. The same figures are Parquet beside it: hours, days, reasons, gaps and
    forecast.
    """
    with shared.running("report", settings) as spark:
        from duebridge_connectors.spark.jobs.report import run_report

        path = str(config_path(context, config))
        done = run_report(
            spark,
            out,
            config=path,
            since_ms=shared.instant_ms("--since", since, path) or 0,
            **shared.given_only(routes=route, journal=journal, violations=violations),
        )
    shared.show_summary(done, output)
