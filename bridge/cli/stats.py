"""`duebridge stats`: how full each route is."""

import typer

from bridge.cli.instants import format_instant
from bridge.cli.output import Output, OutputOption, write_json, write_table
from bridge.cli.session import ConfigOption, load, opened_store
from bridge.operator import Operator, RouteStats

COLUMNS = (
    "route",
    "pending",
    "ready",
    "unack",
    "retry",
    "dead",
    "oldest due",
    "held since",
    "shards",
    "",
)


def stats(
    context: typer.Context, output: OutputOption = Output.TABLE, config: ConfigOption = None
) -> None:
    """Count the envelopes of every route by state.

    Ages are milliseconds; in JSON, instants are epoch milliseconds, and 0 where there is none.
    A route that the store has and the configuration has not is marked ("configured": false).
    """
    settings = load(context, config)
    with opened_store(settings) as connection:
        routes = Operator(settings, connection).stats()
    if output is Output.JSON:
        write_json({"routes": routes})
    else:
        write_table(COLUMNS, [_row(route) for route in routes])


def _row(route: RouteStats) -> tuple[str, ...]:
    counts = (route.pending, route.ready, route.unack, route.retry, route.dead)
    return (
        route.route,
        *(str(count) for count in counts),
        f"{route.oldest_due_age_ms}ms" if route.oldest_due_age_ms else "-",
        format_instant(route.held_since_ms),
        str(route.shards),
        "" if route.configured else "not in the configuration",
    )
