"""`duebridge spark journal`, `tidy`, `report` and `reconcile`: the history of envelopes."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from duebridge.cli.exits import finish
from duebridge.cli.output import Output, OutputOption, write, write_json, write_table
from duebridge.cli.session import ConfigOption, config_if_any
from duebridge_connectors.spark.commands import job


def journal(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="Directory of the table; created if missing.")],
    route: Annotated[
        str | None, typer.Option(help="Routes, separated by commas; by default all.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(help="Run until Ctrl-C, with a batch at this interval, such as 1m."),
    ] = None,
    takes_over: Annotated[
        bool,
        typer.Option("--take-over", help="Make a Delta table of one of duebridge 0.2.0 first."),
    ] = False,
    start: Annotated[
        str | None, typer.Option(help="Where a new table starts: earliest or latest.")
    ] = None,
    on_trim: Annotated[
        str | None,
        typer.Option(help="If the cap removed planned entries: fail, or gap to continue."),
    ] = None,
    max_entries_per_trigger: Annotated[
        int | None,
        typer.Option("--max-entries", help="Journal entries per batch, of up to 1,000 rows each."),
    ] = None,
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Append the journal to a Delta table, every row exactly once.

    The table is partitioned by day; `spark tidy` merges its small files. TABLE/_checkpoint holds
    the position in the journal: a further run continues there, even after a kill. Entries removed
    by the journal's cap before they were read become a row of kind gap, and are reported.
    """
    write, wanted = job.given_options(locals())
    with job.job_session("journal", settings, config=write["config"], places=[table]) as spark:
        from duebridge_connectors.spark.jobs.journal import run_journal

        done = run_journal(spark, **wanted, **write, **job.progress_options(every))
    job.show_summary(done, output)


def tidy(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="Directory of a Delta table.")],
    keep: Annotated[
        str | None,
        typer.Option(help="How long to keep files that no version names; by default 1d."),
    ] = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Merge the small files of a Delta table, and remove those that nobody reads any more.

    No row changes, and jobs that append to the table may run at the same time. A file whose columns
    no other has is left, and named. Spark is not needed, nor a configuration, but for the options
    of a bucket.
    """
    given = {"keep": keep, "config": config_if_any(context, config)}
    wanted = {name: str(value) for name, value in given.items() if value is not None}
    job.show_summary(job.imported("jobs.tidy").run_tidy(table, **wanted), output)


def report(
    context: typer.Context,
    out: Annotated[str, typer.Argument(help="Directory for the page and the Parquet files.")],
    routes: job.RoutesOption = None,
    journal: job.JournalTableOption = None,
    violations: Annotated[
        str | None,
        typer.Option(help="OUT/violations of the job reconcile, the source of duplicates."),
    ] = None,
    since: job.SinceOption = None,
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Write OUT/report.html: lateness, throughput, retries, dead letters, and a forecast.

    The page needs no network and no script. It shows counts, times, routes and reasons, but no id,
    body or header. The same figures are beside it as Parquet: hours, days, reasons, gaps, forecast.
    """
    write, wanted = job.given_options(locals())
    with job.job_session(
        "report",
        settings,
        has_delta=journal is not None,
        config=write["config"],
        places=[out, journal, violations],
    ) as spark:
        from duebridge_connectors.spark.jobs.report import run_report

        done = run_report(spark, **job.with_instants(wanted, **write), **write)
    job.show_summary(done, output)


if TYPE_CHECKING:
    from duebridge_connectors.spark.jobs.reconcile import Reconciliation


def reconcile(
    context: typer.Context,
    routes: job.RoutesOption = None,
    journal: job.JournalTableOption = None,
    receipts: Annotated[
        str | None, typer.Option(help="Parquet of accepted envelopes: route, id, due_at, and more.")
    ] = None,
    exports: Annotated[
        list[str] | None,
        typer.Option("--export", help="A consumer's messages, as JSON lines or .parquet files."),
    ] = None,
    since: job.SinceOption = None,
    until: Annotated[
        str | None, typer.Option(help="End of the period: a time ago, or an instant.")
    ] = None,
    late: Annotated[
        str | None,
        typer.Option(help="Name envelopes that arrived later than this after they were due."),
    ] = None,
    stuck_after: Annotated[
        str | None,
        typer.Option(help="Envelopes overdue in the store for longer are stuck; by default 1m."),
    ] = None,
    clock_skew: Annotated[
        str | None,
        typer.Option(help="How far brokers' clocks may be behind the store's, such as 5s."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(help="Directory for verdict.html, and Parquet of violations and stories."),
    ] = None,
    page: Annotated[
        str | None, typer.Option(help="Path of the verdict's page alone; by default in --out.")
    ] = None,
    settings: job.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Name every lost, duplicate, early, late, corrupt or misplaced message.

    Accepted envelopes (of the journal, or of receipts) are compared with the journal, the store and
    the brokers: Kafka topics are read, RabbitMQ messages come from a consumer's export. Nothing is
    changed. Exits 1 if the guarantee was broken, 5 if the verdict is undetermined: what is missing
    is named. Duplicate and late messages do not break it. docs/spark/reconcile.md lists the columns
    and kinds.
    """
    write, wanted = job.given_options(locals())
    with job.job_session(
        "reconcile",
        settings,
        has_kafka=True,
        has_delta=journal is not None,
        config=write["config"],
        places=[journal, receipts, out, *(exports or ())],
    ) as spark:
        from duebridge_connectors.spark.jobs.reconcile import run_reconcile

        wanted = job.with_instants(wanted, **write)
        if receipts is not None:
            wanted["receipts"] = spark.read.parquet(receipts)
        done = run_reconcile(spark, **wanted, **write)
    if output is Output.JSON:
        write_json(done)
    else:
        _show(done)
    finish(is_yes=None if done.verdict == "undetermined" else done.holds)


def _show(done: "Reconciliation") -> None:
    """Write the verdict with a column for each route, as the demo does."""
    rows = [msgspec.structs.asdict(verdict) for verdict in done.routes]
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
