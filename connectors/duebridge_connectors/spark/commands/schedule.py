"""`duebridge spark schedule`, `demote`, `hydrate`, `tidy-cold`: the store and its cold tier."""

from typing import Annotated

import typer

from duebridge.cli.exits import finish
from duebridge.cli.output import Output, OutputOption, complain
from duebridge.cli.session import ConfigOption, actor_name
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
    columns: job.ColumnOption = None,
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
    read_options: Annotated[
        list[str] | None, typer.Option("--read", help="An option of Spark's reader: NAME=VALUE.")
    ] = None,
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Schedule every row of the inputs to a route.

    A row has the columns id, body, and due_at or delay; optional ones such as key, headers and
    expires are listed in connectors/duebridge_connectors/spark/README.md, and all others are
    ignored. Running the same job again changes nothing. Refused rows go to --rejects, and the job
    continues.
    """
    write, wanted = job.given_options(locals())
    write["actor"] = actor_name()
    check_format(form)
    with job.job_session(
        "schedule", settings, config=write["config"], route=route, places=inputs
    ) as spark:
        from duebridge_connectors.spark.jobs.schedule import run_schedule

        summary = run_schedule(spark, **wanted, **write)
    job.show_summary(summary, output)
    if summary.rejects:
        complain(f"the refused rows: {rejects or 'see them with --rejects DIRECTORY'}")
    finish(is_yes=not summary.rejects and not summary.skipped)


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
    write, _ = job.given_options(locals())
    with job.job_session("demote", settings, config=write["config"], route=route) as spark:
        from duebridge_connectors.spark.jobs.demote import run_demote

        summary = run_demote(spark, **write)
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
    write, _ = job.given_options(locals())
    with job.job_session("hydrate", settings, config=write["config"], route=route) as spark:
        from duebridge_connectors.spark.jobs.hydrate import run_hydrate

        summary = run_hydrate(spark, **write)
    job.show_summary(summary, output)
    finish(is_yes=not summary.left)


def tidy_cold(
    context: typer.Context,
    route: job.RouteArgument,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Merge the small files of a route's cold tier, and delete those that nobody reads any more.

    Demote and hydrate do a part of it each time, so this is for a tier of many small files, or one
    of version 0.2. It starts no Spark, and may run while other jobs do. Files of killed jobs go a
    day later, files that returned a week later: as long as a backup of `_commits` may need them.
    """
    write, _ = job.given_options(locals())
    summary = job.imported("jobs.tidy_cold").run_tidy_cold(**write)
    job.show_summary(summary, output)
