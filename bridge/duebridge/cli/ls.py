"""`duebridge ls`: the envelopes of a route, page by page."""

from enum import StrEnum
from itertools import islice
from typing import Annotated

import typer

from duebridge.admin.cold_rows import ColdRows
from duebridge.admin.listing import Window, read_cursor
from duebridge.admin.operator import Operator
from duebridge.cli.envelopes import RouteArgument
from duebridge.cli.instants import parse_from_now
from duebridge.cli.output import Output, OutputOption
from duebridge.cli.pages import CursorOption, LimitOption, Page, error_cell, show_envelopes
from duebridge.cli.session import ConfigOption, load, opened_store
from duebridge.durations import format_instant
from duebridge.producer import find_route
from duebridge.receipt import Known

COLUMNS = ("id", "state", "due", "attempt", "failures", "expires", "last error")


class State(StrEnum):
    """The states that people name."""

    PENDING = "pending"
    READY = "ready"
    UNACK = "unack"
    RETRY = "retry"
    DEAD = "dead"
    COLD = "cold"  # in files; no state of the store


StateOption = Annotated[
    State | None, typer.Option(help="Only those in this state; else all.", show_default=False)
]
DueAfterOption = Annotated[
    str | None,
    typer.Option(help="Due then or later: a time from now (15m), or an instant as of send --at."),
]
DueBeforeOption = Annotated[
    str | None, typer.Option(help="Due then or earlier; as --due-after.", show_default=False)
]


def ls(
    context: typer.Context,
    route: RouteArgument,
    state: StateOption = None,
    due_after: DueAfterOption = None,
    due_before: DueBeforeOption = None,
    limit: LimitOption = 100,
    cursor: CursorOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """List the envelopes of a route.

    They come in the order of what they wait for: the due instant, the end of a retry's delay, the
    end of a lease; the dead that nothing takes away come last. Where there are more, the last line
    is the cursor of the next page: in JSON {"cursor": "..."}, else a line on standard error. One
    that changes its state between two pages may come twice or not at all.

    With --state cold they are those in the route's cold tier, by their due instant and with no
    cursor: go on with --due-after.
    """
    settings = load(context, config)
    with opened_store(settings) as connection:
        operator = Operator(settings, connection)
        window = _window(operator, due_after, due_before)
        if state is State.COLD:
            rows = ColdRows(settings, connection, find_route(settings, route)).walk(window)
            found = list(islice(rows, limit))
            show_envelopes(found, COLUMNS, map(_row, found), output)
            return
        wanted = state.value if state else ""
        listing = operator.listing(route, wanted)
        after = None if cursor is None else read_cursor(cursor, route, wanted)
        page = Page(route, listing.walk(window=window, after=after, limit=limit + 1), limit)
        page.show(COLUMNS, (_row(known) for known in page.envelopes), output)


def _window(operator: Operator, after: str | None, before: str | None) -> Window:
    if after is None and before is None:
        return Window()
    now_ms = operator.now_ms()
    return Window(
        None if after is None else parse_from_now(after, "--due-after", now_ms),
        None if before is None else parse_from_now(before, "--due-before", now_ms),
    )


def _row(known: Known) -> tuple[str, ...]:
    return (
        known.id,
        known.state,
        format_instant(known.due_at_ms),
        str(known.attempt),
        str(known.failures),
        format_instant(known.expires_at_ms),
        error_cell(known),
    )
