"""`duebridge stats`: the envelopes of each route, counted by state."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from duebridge.cli.output import Output, OutputOption, write_json, write_table, write_tables
from duebridge.cli.session import ConfigOption, load, opened_store
from duebridge.durations import format_instant, parse_duration_ms
from duebridge.errors import EnvelopeError

if TYPE_CHECKING:
    from duebridge.admin.operator import Operator, RouteStats

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

WatchOption = Annotated[
    bool, typer.Option("--watch", help="Keep counting until Ctrl-C, which exits 130.")
]
EveryOption = Annotated[str | None, typer.Option(help="With --watch: the interval; 2s by default.")]


def stats(
    context: typer.Context,
    watch: WatchOption = False,
    every: EveryOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Count the envelopes of every route by state.

    Ages are milliseconds; in JSON, instants are epoch milliseconds, 0 if there is none. A failing
    target is shown with the broker's error; in JSON, "held" has each, if any, and
    "rejected" counts the dead letters that their target rejects, if any. A route
    that is in the store but not in the configuration is marked ("configured": false). With --watch
    the table is refreshed in place on a terminal; in JSON each round is a line.
    """
    from duebridge.admin.operator import Operator

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


def _rounds(operator: "Operator", pause_s: float) -> "Iterator[list[RouteStats]]":
    while True:
        yield operator.stats()
        time.sleep(pause_s)


def _row(route: "RouteStats") -> tuple[str, ...]:
    counts = (route.pending, route.ready, route.unack, route.retry, route.dead)
    return (
        route.route,
        *(str(count) for count in counts),
        f"{route.oldest_due_age_ms}ms" if route.oldest_due_age_ms else "-",
        format_instant(route.held_since_ms),
        str(route.shards),
        _note(route),
    )


def _note(route: "RouteStats") -> str:
    """Return what is wrong with a route; of several failing targets, the one that fails longest."""
    if not route.configured:
        return "not in the configuration"
    if not route.held:
        return f"dead and rejected by their target: {route.rejected}" if route.rejected else ""
    first, *others = route.held
    kind = "dead-letter target" if first.dead_letter else "target"
    more = f" (and {len(others)} more)" if others else ""
    return f"{kind} {first.target}: {first.error}{more}"
