"""`duebridge dead`: the envelopes that no broker took."""

from typing import Annotated

import typer

from bridge.cli.envelopes import RouteArgument
from bridge.cli.instants import format_instant
from bridge.cli.output import Output, OutputOption, write_json, write_table
from bridge.cli.session import ConfigOption, load, opened_store
from bridge.operator import Operator
from bridge.receipt import Known

COLUMNS = ("id", "reason", "attempt", "error", "first failed", "last failed")

LimitOption = Annotated[int, typer.Option(min=1, help="At most so many envelopes.")]


def ls(
    context: typer.Context,
    route: RouteArgument,
    limit: LimitOption = 100,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """List the dead envelopes of a route, and why.

    Where the route names a dead-letter target, they leave the store once it has them. In JSON,
    instants are epoch milliseconds, and 0 where there is none.
    """
    settings = load(context, config)
    with opened_store(settings) as connection:
        found = Operator(settings, connection).dead(route, limit)
        if output is Output.JSON:
            for known in found:
                write_json(known)
        else:
            write_table(COLUMNS, [_row(known) for known in found])


def _row(known: Known) -> tuple[str, ...]:
    error = ": ".join(part for part in (known.error_class, known.error_message) if part)
    return (
        known.id,
        known.reason or "-",
        str(known.attempt),
        error or "-",
        format_instant(known.first_failed_at_ms),
        format_instant(known.last_failed_at_ms),
    )
