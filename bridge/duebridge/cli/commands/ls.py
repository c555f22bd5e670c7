"""`duebridge ls`: the envelopes of a route, page by page."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from duebridge.cli.output import (
    STDOUT,
    Output,
    OutputOption,
    complain,
    is_terminal,
    write_blocks,
    write_json,
    write_table,
)
from duebridge.cli.session import ConfigOption, RouteArgument, load, opened_store
from duebridge.cli.shown import LONG_COLUMNS, BodyOption, as_block, as_json, error_text, long_cells
from duebridge.durations import format_instant
from duebridge.errors import EnvelopeError
from duebridge.instants import InstantOrOffset, parse_from_now
from duebridge.receipt import EnvelopeDetails, Known

if TYPE_CHECKING:
    from duebridge.admin.listing import ListedEnvelope, ListPosition
    from duebridge.admin.operator import Operator
    from duebridge.config.models import Config
    from duebridge.store.due_window import DueWindow
    from duebridge.store.server.connection import Connection
    from duebridge.store.wire.replies import Entry

MOST_LISTED = 10**9
COLUMNS = ("id", "state", "due", "attempt", "failures", "expires", "last error")


class StateChoice(StrEnum):
    """The states that people name."""

    PENDING = "pending"
    READY = "ready"
    UNACK = "unack"
    RETRY = "retry"
    DEAD = "dead"
    SUSPECT = "suspect"  # of the ready: claimed alone, since its leases ran out twice
    COLD = "cold"  # in files, not in the store


LimitOption = Annotated[
    int, typer.Option(min=1, max=MOST_LISTED, help="The most envelopes to list.")
]
CursorOption = Annotated[
    str | None, typer.Option(help="Continue after this cursor.", show_default=False)
]
StateOption = Annotated[
    StateChoice | None, typer.Option(help="Only envelopes in this state.", show_default=False)
]
LongOption = Annotated[
    bool, typer.Option("--long", "-l", help="Show key, headers, target, priority and size too.")
]
DueAfterOption = Annotated[
    str | None,
    typer.Option(help="Due at or after: a delay from now (15m), or an instant as for send --at."),
]
DueBeforeOption = Annotated[
    str | None, typer.Option(help="Due at or before; as --due-after.", show_default=False)
]


def ls(
    context: typer.Context,
    route: RouteArgument,
    state: StateOption = None,
    due_after: DueAfterOption = None,
    due_before: DueBeforeOption = None,
    long: LongOption = False,
    body: BodyOption = False,
    limit: LimitOption = 100,
    cursor: CursorOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """List the envelopes of a route.

    The order is by the instant each one waits for: its due instant, the end of its retry delay, or
    the end of its lease; dead envelopes that nothing takes away come last. If there are more, the
    last line is the cursor of the next page: in JSON {"cursor": "..."}, else a line on standard
    error. An envelope that changes its state between two pages may be listed twice or not at all.

    --state suspect lists those of the ready that are claimed alone, since their leases ran out
    twice: one of them may kill workers.

    --long adds key, headers, the envelope's own target, AMQP priority and the size of the body,
    --body the body too; in JSON they have the form that `get` has. On a terminal each envelope is a
    block of lines, since no table of them fits. --state cold lists the route's cold tier by due
    instant, without a cursor: if there are more, a line on standard error has the --due-after to
    continue with, whose instant comes again. Cold rows have no further fields.
    """
    from duebridge.admin.listing import Listing, read_cursor
    from duebridge.admin.operator import Operator

    wanted = "" if state is None or state is StateChoice.COLD else state.value
    since, until = _instant(due_after, "--due-after"), _instant(due_before, "--due-before")
    if cursor is not None and state is StateChoice.COLD:
        raise EnvelopeError("--cursor: expected --due-after with --state cold, which has no cursor")
    after = None if cursor is None else read_cursor(cursor, route, wanted)
    settings = load(context, config)
    with opened_store(settings) as connection:
        operator = Operator(settings, connection)
        window = _window(operator, since, until)
        if state is StateChoice.COLD:
            _show_cold(_cold_rows(settings, connection, route, window), limit, output)
            return
        listing = Listing(route, operator.stores(route), wanted)
        listed = listing.walk(window=window, after=after, limit=limit + 1)
        page = EnvelopePage(route, listed, limit)
        if long or body:
            _show_long(page, output, with_body=body)
        else:
            page.show(COLUMNS, _row, output)


def _show_cold(rows: Iterator[Known], limit: int, output: Output) -> None:
    found = list(islice(rows, limit + 1))
    shown = found[:limit]
    show_envelopes(shown, COLUMNS, _row, output)
    if len(found) > limit:
        complain(f"there are more: {_cold_rest(shown[0].due_at_ms, shown[-1].due_at_ms, limit)}")


def _cold_rest(first_ms: int, last_ms: int, limit: int) -> str:
    """Return the option that shows the rest: the last instant alone would only show it again."""
    if first_ms == last_ms:
        return f"--limit beyond {limit}, since all of these are due at one instant"
    return f"--due-after {format_instant(last_ms)}"


def _show_long(page: "EnvelopePage", output: Output, *, with_body: bool) -> None:
    if output is Output.JSON:
        for shown in page.whole():
            write_json(as_json(shown, with_body))
    elif is_terminal(STDOUT):
        write_blocks(as_block(shown, with_body) for shown in page.whole())
    else:
        *columns, error = COLUMNS
        rows = [
            (*cells, *long_cells(shown, with_body), last_error)
            for shown in page.whole()
            for *cells, last_error in [_row(shown)]
        ]
        more = ("body",) if with_body else ()
        write_table((*columns, *LONG_COLUMNS, *more, error), rows)
    page.show_cursor(output)


class EnvelopePage:
    """The first `limit` envelopes, and the cursor behind them if there are more.

    They can be read once. None of them is kept: a body may be large, and `limit` too.
    """

    def __init__(self, route: str, listed: "Iterable[ListedEnvelope]", limit: int) -> None:
        self._route = route
        self._listed = listed
        self._limit = limit
        self._last: ListPosition | None = None
        self._has_more = False

    def envelopes(self) -> Iterator[Known]:
        """Yield the envelopes without their contents."""
        return (Known.of(self._route, entry) for entry in self._entries())

    def whole(self) -> Iterator[EnvelopeDetails]:
        """Yield the envelopes with their contents."""
        return (EnvelopeDetails.of(self._route, entry) for entry in self._entries())

    def _entries(self) -> "Iterator[Entry]":
        for number, found in enumerate(self._listed):
            if number == self._limit:
                self._has_more = True
                return
            self._last = found.position
            yield found.entry

    def show(
        self, columns: Sequence[str], row: Callable[[Known], Sequence[str]], output: Output
    ) -> None:
        """Write the page, its cursor last; for people the cursor goes to standard error."""
        show_envelopes(self.envelopes(), columns, row, output)
        self.show_cursor(output)

    def show_cursor(self, output: Output) -> None:
        """Write the cursor of a page that was read, if there are more; for people as `show`."""
        if not self._has_more:
            return
        if output is Output.JSON:
            write_json({"cursor": str(self._last)})
        else:
            complain(f"there are more: --cursor {self._last}")


def show_envelopes(
    envelopes: Iterable[Known],
    columns: Sequence[str],
    row: Callable[[Known], Sequence[str]],
    output: Output,
) -> None:
    """Write envelopes: a table for people, in JSON one object a line, as each is read."""
    if output is not Output.JSON:
        write_table(columns, map(row, envelopes))
        return
    for known in envelopes:
        write_json(known)


def error_cell(known: Known) -> str:
    """Return class and message of the last error for people, a dash for none."""
    error = error_text(known.error_class, known.error_message) or "-"
    return f"{error}; dead letter: {known.letter_error}" if known.letter_error else error


def _cold_rows(
    config: "Config", connection: "Connection", route: str, window: "DueWindow"
) -> Iterator[Known]:
    from duebridge.cold_rows import ColdRows
    from duebridge.scheduling.route_scheduler import find_route

    return ColdRows(config, connection, find_route(config, route)).walk(window)


def _instant(given: str | None, name: str) -> InstantOrOffset | None:
    return None if given is None else parse_from_now(given, name)


def _window(
    operator: "Operator", since: InstantOrOffset | None, until: InstantOrOffset | None
) -> "DueWindow":
    from duebridge.store.due_window import DueWindow

    if since is None and until is None:
        return DueWindow()
    now_ms = operator.now_ms()
    return DueWindow(since and since.at_ms(now_ms), until and until.at_ms(now_ms))


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
