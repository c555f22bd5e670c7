"""`duebridge stats`: how full each route is."""

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from duebridge.admin.operator import Operator, RouteStats
from duebridge.cli.output import Output, OutputOption, write_json, write_table, write_tables
from duebridge.cli.session import ConfigOption, load, opened_store
from duebridge.durations import format_instant, parse_duration_ms
from duebridge.errors import EnvelopeError

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
LEAST_PAUSE_MS = 100

WatchOption = Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C, which exits 130.")]
EveryOption = Annotated[
    str | None, typer.Option(help="With --watch: count anew after this time; 2s if not given.")
]


def stats(
    context: typer.Context,
    watch: WatchOption = False,
    every: EveryOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Count the envelopes of every route by state.

    Ages are milliseconds; in JSON, instants are epoch milliseconds, and 0 where there is none.
    A route that the store has and the configuration has not is marked ("configured": false).
    With --watch the table is renewed in place on a terminal; in JSON each round is a line.
    """
    pause_s = _pause_s(every, watch)
    settings = load(context, config)
    with opened_store(settings) as connection:
        operator = Operator(settings, connection)
        rounds = _rounds(operator, pause_s) if watch else iter([operator.stats()])
        if output is Output.JSON:
            for routes in rounds:
                write_json({"routes": routes})
        elif watch:
            write_tables(COLUMNS, ([_row(route) for route in routes] for routes in rounds))
        else:
            write_table(COLUMNS, [_row(route) for routes in rounds for route in routes])


def _pause_s(every: str | None, watch: bool) -> float:
    if every is not None and not watch:
        raise EnvelopeError("--every: expected --watch beside it")
    pause_ms = parse_duration_ms(every or "2s", "--every")
    if pause_ms < LEAST_PAUSE_MS:
        raise EnvelopeError(f"--every: expected at least {LEAST_PAUSE_MS}ms; got {every!r}")
    return pause_ms / 1000


def _rounds(operator: Operator, pause_s: float) -> Iterator[list[RouteStats]]:
    while True:
        yield operator.stats()
        time.sleep(pause_s)


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
