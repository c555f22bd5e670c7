"""`duebridge spark journal`, `report` and `reconcile`: what happened to the envelopes."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from duebridge.cli.exits import finish
from duebridge.cli.output import Output, OutputOption, write, write_json, write_table
from duebridge.cli.session import ConfigOption, config_path
from duebridge_connectors.spark.commands import job


def journal(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="Directory of the table; made where there is none.")],
    route: Annotated[
        str | None, typer.Option(help="One or several routes, with commas; all if not given.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Go on until Ctrl-C, looking so often, such as 1m.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="How long merged files stay for readers; by default 1h.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="Where a new table begins: earliest, or latest.")
    ] = None,
    on_trim: Annotated[
        str | None, typer.Option(help="If the cap cut what was planned: fail, or go on with a gap.")
    ] = None,
    max_entries: Annotated[
        int | None, typer.Option(help="Entries of the journal a batch; each is up to 1,000 rows.")
    ] = None,
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Add what the journal has by now to a table, every row exactly once.

    The table is partitioned by day and route, small files are merged, and TABLE/_checkpoint says
    how far the journal is read: run it again and it goes on from there, also after it was killed.
    What the journal's cap had cut before it was read is a row of kind gap, and is reported.
    """
    options = job.given_options(
        config=str(config_path(context, config)),
        route=route,
        every=every,
        keep=keep,
        start=start,
        on_trim=on_trim,
        max_entries_per_trigger=max_entries,
    )
    with job.job_session("journal", settings) as spark:
        from duebridge_connectors.spark.jobs.journal import run_journal

        done = run_journal(spark, table, **job.progress_options(every), **options)
    job.show_summary(done, output)


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
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Write OUT/report.html: lateness, throughput, retries, dead letters, and what falls due.

    The page needs no network and runs no script; it has counts, times, routes and reasons, and no
    id, body or header. The same figures are Parquet beside it: hours, days, reasons, gaps and
    forecast.
    """
    with job.job_session("report", settings) as spark:
        from duebridge_connectors.spark.jobs.report import run_report

        path = str(config_path(context, config))
        done = run_report(
            spark,
            out,
            config=path,
            since_ms=job.instant_ms("--since", since, path) or 0,
            **job.given_options(routes=route, journal=journal, violations=violations),
        )
    job.show_summary(done, output)


if TYPE_CHECKING:
    from duebridge_connectors.spark.jobs.reconcile import Reconciliation


def reconcile(
    context: typer.Context,
    route: Annotated[
        list[str] | None, typer.Option(help="A route to judge; all of them if not given.")
    ] = None,
    journal: Annotated[
        str | None, typer.Option(help="A table of the job journal; the store's own if not given.")
    ] = None,
    receipts: Annotated[
        str | None, typer.Option(help="Parquet of what was accepted: route, id, due_at, and more.")
    ] = None,
    export: Annotated[
        list[str] | None,
        typer.Option(help="What a consumer wrote down, JSON lines or .parquet: route, id, at."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Judge what was accepted since: a time ago, or an instant.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Judge what was accepted until: a time ago, or an instant.")
    ] = None,
    late: Annotated[
        str | None, typer.Option(help="Name what arrived later than so long after it was due.")
    ] = None,
    stuck_after: Annotated[
        str | None, typer.Option(help="What is overdue in the store for longer is stuck; 1m.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(help="A directory for Parquet of the violations and their stories."),
    ] = None,
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Name every lost, duplicate, early, late or corrupt message.

    What was accepted (by the journal, or by receipts) is held against what the journal says, what
    the store holds and what the brokers really have: Kafka's topics are read whole, of RabbitMQ
    what a consumer exported. Nothing is changed. Exits 1 if the guarantee was broken; duplicates
    and late ones are named and break nothing. docs/spark/reconcile.md lists columns and words.
    """
    with job.job_session("reconcile", settings, has_kafka=True) as spark:
        from duebridge_connectors.spark.jobs.reconcile import run_reconcile

        path = str(config_path(context, config))
        done = run_reconcile(
            spark,
            path,
            receipts=None if receipts is None else spark.read.parquet(receipts),
            since_ms=job.instant_ms("--since", since, path) or 0,
            until_ms=job.instant_ms("--until", until, path),
            late=late,
            out=out,
            **job.given_options(
                routes=route, journal=journal, exports=export, stuck_after=stuck_after
            ),
        )
    if output is Output.JSON:
        write_json(done)
    else:
        _show(done)
    finish(is_yes=done.holds)


def _show(done: "Reconciliation") -> None:
    """Write the verdict side by side, a column a route, as the demo does."""
    rows = [msgspec.structs.asdict(each) for each in done.routes]
    names = [name for name in (rows[0] if rows else {}) if name != "route"]
    write_table(
        ["", *(row["route"] for row in rows)],
        [[_words(name), *(_cell(row[name]) for row in rows)] for name in names],
    )
    write(str(done))


def _words(name: str) -> str:
    text = name.replace("_", " ")
    return f"{text.removesuffix(' ms')}, ms" if text.endswith(" ms") else text


def _cell(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
