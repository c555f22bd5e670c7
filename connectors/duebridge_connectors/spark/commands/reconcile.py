"""`duebridge spark reconcile`: what was accepted, held against what became of it."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from duebridge.cli.exits import finish
from duebridge.cli.output import Output, OutputOption, write, write_json, write_table
from duebridge.cli.session import ConfigOption, config_path
from duebridge_connectors.spark.commands import shared

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
    settings: shared.SettingOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Name every lost, duplicate, early, late or corrupt message.

    What was accepted (by the journal, or by receipts) is held against what the journal says, what
    the store holds and what the brokers really have: Kafka's topics are read whole, of RabbitMQ
    what a consumer exported. Nothing is changed. Exits 1 if the guarantee was broken; duplicates
    and late ones are named and break nothing. docs/spark/reconcile.md lists columns and words.
    """
    with shared.running("reconcile", settings, has_kafka=True) as spark:
        from duebridge_connectors.spark.jobs.reconcile import run_reconcile

        path = str(config_path(context, config))
        done = run_reconcile(
            spark,
            path,
            receipts=None if receipts is None else spark.read.parquet(receipts),
            since_ms=shared.instant_ms("--since", since, path) or 0,
            until_ms=shared.instant_ms("--until", until, path),
            late=late,
            out=out,
            **shared.given_only(
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
