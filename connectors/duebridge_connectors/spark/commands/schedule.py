"""`duebridge spark schedule`: bulk scheduling of rows of files or of a table."""

from typing import Annotated

import typer

from duebridge.cli.exits import finish
from duebridge.cli.output import Output, OutputOption, complain
from duebridge.cli.session import ConfigOption, config_path, load
from duebridge.producer import find_route
from duebridge_connectors.spark.commands import job
from duebridge_connectors.spark.source.options import check_format


def schedule(
    context: typer.Context,
    route: job.RouteArgument,
    inputs: Annotated[
        list[str], typer.Argument(help="Files or directories, or the name of a table.")
    ],
    form: Annotated[
        str, typer.Option("--format", help="parquet, csv, json, orc or table.")
    ] = "parquet",
    column: job.ColumnOption = None,
    where: job.WhereOption = None,
    id_columns: Annotated[
        str | None, typer.Option(help="Columns to derive the id from: a,b.")
    ] = None,
    rejects: job.RejectsOption = None,
    max_rejects: job.MaxRejectsOption = None,
    on_conflict: job.OnConflictOption = None,
    remember: job.RememberOption = None,
    rows_per_second: job.RateOption = None,
    cold: Annotated[
        bool, typer.Option(help="Write rows due beyond the horizon to the route's cold tier.")
    ] = True,
    read: Annotated[
        list[str] | None, typer.Option(help="An option of Spark's reader: NAME=VALUE.")
    ] = None,
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Schedule every row of the inputs to a route.

    A row has the columns id, body, and due_at or delay; optional ones such as key, headers and
    expires are listed in connectors/spark/README.md, and all others are ignored. Running the same
    job again changes nothing. Refused rows go to --rejects, and the job continues.
    """
    find_route(load(context, config), route)
    check_format(form)
    columns, read_options = job.parse_pairs("--column", column), job.parse_pairs("--read", read)
    options = job.given_options(
        config=str(config_path(context, config)),
        route=route,
        id_columns=id_columns,
        rejects=rejects,
        max_rejects=max_rejects,
        on_conflict=on_conflict,
        remember=remember,
        rows_per_second=rows_per_second,
    )
    with job.job_session("schedule", settings) as spark:
        from duebridge_connectors.spark.jobs.schedule import run_schedule

        summary = run_schedule(
            spark,
            inputs,
            form=form,
            read_options=read_options,
            columns=columns,
            where=where,
            cold=cold,
            **options,
        )
    job.show_summary(summary, output)
    if summary.rejects:
        complain(f"the refused rows: {rejects or 'see them with --rejects DIRECTORY'}")
    finish(is_yes=not summary.rejects and not summary.skipped)
