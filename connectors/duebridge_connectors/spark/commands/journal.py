"""`duebridge spark journal`: the journal into a table of Parquet files."""

from typing import Annotated

import typer

from duebridge.cli.output import Output, OutputOption
from duebridge.cli.session import ConfigOption, config_path
from duebridge_connectors.spark.commands import shared


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
    settings: shared.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Add what the journal has by now to a table, every row exactly once.

    The table is partitioned by day and route, small files are merged, and TABLE/_checkpoint says
    how far the journal is read: run it again and it goes on from there, also after it was killed.
    What the journal's cap had cut before it was read is a row of kind gap, and is reported.
    """
    options = shared.given_only(
        config=str(config_path(context, config)),
        route=route,
        every=every,
        keep=keep,
        start=start,
        on_trim=on_trim,
        max_entries_per_trigger=max_entries,
    )
    with shared.running("journal", settings) as spark:
        from duebridge_connectors.spark.jobs.journal import run_journal

        done = run_journal(spark, table, **shared.told(every), **options)
    shared.show_summary(done, output)
