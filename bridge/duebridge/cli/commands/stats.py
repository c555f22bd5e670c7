"""`duebridge stats`: the envelopes of each route, counted by state."""

import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from duebridge.cli.output import (
    STDOUT,
    Output,
    OutputOption,
    complain,
    is_terminal,
    printable,
    table,
    terminal_width,
    write,
    write_frames,
    write_json,
    write_lines,
)
from duebridge.cli.plots import Bar, age, histogram_lines, marks_of
from duebridge.cli.session import AWAY, ConfigOption, RouteFilter, load, opened_operator
from duebridge.durations import format_instant, parse_duration_ms
from duebridge.errors import EnvelopeError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from duebridge.admin.operator import Operator
    from duebridge.admin.route_stats import RouteStats

T = TypeVar("T")

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
NARROW = 100  # columns of a terminal below which instants are ages, and notes stand beneath
NARROW_COLUMNS = (*COLUMNS[:6], "oldest due", "held for", "shards")
LEAST_PAUSE_MS = 100


class HorizonChoice(StrEnum):
    """The horizon of a histogram."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"


LABEL_WIDTH = {HorizonChoice.HOUR: 5, HorizonChoice.DAY: 5, HorizonChoice.WEEK: 9}
BARS = {HorizonChoice.HOUR: 20, HorizonChoice.DAY: 24, HorizonChoice.WEEK: 14}

WatchOption = Annotated[
    bool, typer.Option("--watch", help="Keep counting until Ctrl-C, which exits 130.")
]
EveryOption = Annotated[str | None, typer.Option(help="With --watch: the interval; 2s by default.")]
HistogramOption = Annotated[
    bool, typer.Option("--histogram", help="Show how many envelopes fall due when.")
]
HorizonOption = Annotated[
    HorizonChoice | None, typer.Option(help="With --histogram: how far; hour by default.")
]


def stats(
    context: typer.Context,
    route: RouteFilter = None,
    watch: WatchOption = False,
    every: EveryOption = None,
    histogram: HistogramOption = False,
    horizon: HorizonOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Count the envelopes of every route by state.

    Ages are milliseconds; in JSON, instants are epoch milliseconds, 0 if there is none. A failing
    target is shown with the broker's error; in JSON, "held" has each, if any, "rejected" counts the
    dead letters that their target rejects, and "suspects" the ready envelopes that `ls --state
    suspect` lists. A route that is in the store but not in the configuration is marked
    ("configured": false). With --watch the table is refreshed in place on a terminal; in JSON each
    round is a line. It waits for a store that goes away, says so, and goes on. Below 100
    columns a terminal has ages for instants, and what is wrong with a route beneath the table.

    With --histogram it is a plot of what falls due until the horizon, in UTC: pending by its due
    instant, retry by its next try. In JSON it stands beside the routes.
    """
    if every is not None and not watch:
        raise EnvelopeError("--every: expected --watch beside it")
    pause_s = parse_pause_s(every or "2s")
    if (histogram and watch) or (horizon and not histogram):
        raise EnvelopeError("--horizon needs --histogram; --histogram excludes --watch")
    settings = load(context, config)
    names = [route] if route else []
    with opened_operator(settings) as operator:
        if histogram:
            _show_histogram(operator, names, horizon or HorizonChoice.HOUR, output)
        elif watch:
            _watch(operator, names, pause_s, output)
        elif output is Output.JSON:
            write_json({"routes": operator.stats(names)})
        else:
            write_lines(_read_frame(operator, names))


def parse_pause_s(every: str) -> float:
    """Return an interval in seconds; raises `EnvelopeError` for one that is too short."""
    pause_ms = parse_duration_ms(every, "--every")
    if pause_ms < LEAST_PAUSE_MS:
        raise EnvelopeError(f"--every: expected at least {LEAST_PAUSE_MS}ms; got {every!r}")
    return pause_ms / 1000


def _show_histogram(
    operator: "Operator", names: list[str], horizon: HorizonChoice, output: Output
) -> None:
    """Write what falls due, of some routes or of all: a plot, or JSON with the stats."""
    from duebridge.admin.histogram import due_histogram, edges

    routes = operator.stats(names)
    ends = [0, *edges(operator.now_ms(*names), horizon.value, BARS[horizon])]
    past, *found = due_histogram(operator, [each.route for each in routes], ends)
    if output is Output.JSON:
        write_json({"routes": routes, "horizon": horizon.value, "histogram": found})
        return
    marks = marks_of(sys.stdout.encoding)
    key = f"pending {marks.pending}, retry {marks.retry}"
    utc = "UTC".ljust(LABEL_WIDTH[horizon])
    write(f"{utc}  pending  retry  due in the next {horizon.value}: {key}")
    bars = [Bar(each.from_ms, each.pending, each.retry) for each in found]
    for line in histogram_lines(bars, horizon.value, marks):
        write(line)
    due = past.due + sum(each.ready + each.unack for each in routes)
    oldest = age(max((each.oldest_due_age_ms for each in routes), default=0))
    write(f"due already: {due}" + (f", the oldest for {oldest}" if due else ""))


def _watch(operator: "Operator", names: list[str], pause_s: float, output: Output) -> None:
    if output is Output.JSON:
        for routes in rounds(lambda: operator.stats(names), pause_s):
            write_json({"routes": routes})
    else:
        beside = _with_note if is_terminal(STDOUT) else None
        write_frames(rounds(partial(_read_frame, operator, names), pause_s, beside))


def rounds(
    read: Callable[[], T], pause_s: float, beside: Callable[[T, Exception], T] | None = None
) -> Iterator[T]:
    """Yield what each round reads; raises as the first one does.

    While the store is away `beside` puts the error beside what was read last; without it people are
    told once, and nothing is yielded.
    """
    found = read()
    yield found
    is_away = False
    while True:
        time.sleep(pause_s)
        try:
            found = read()
        except AWAY as error:
            if beside is not None:
                yield beside(found, error)
            elif not is_away:
                complain(_told(error))
            is_away = True
        else:
            is_away = False
            yield found


def _told(error: Exception) -> str:
    return f"duebridge: {error}; waiting for the store"


def _read_frame(operator: "Operator", names: list[str]) -> "RenderableType":
    return _frame(operator, operator.stats(names))


def _with_note(frame: "RenderableType", error: Exception) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    return Group(frame, Text(printable(_told(error)), style="red"))


def _frame(operator: "Operator", routes: "list[RouteStats]") -> "RenderableType":
    """Return the table; a narrow terminal has what is wrong with a route beneath it."""
    if terminal_width() >= NARROW:
        return table(COLUMNS, [_row(route) for route in routes])
    from rich.console import Group
    from rich.text import Text

    now_ms = operator.now_ms(*(route.route for route in routes))
    rows = [_narrow_row(route, now_ms) for route in routes]
    notes = [f"{route.route}: {note}" for route in routes if (note := _note(route))]
    shown = table(NARROW_COLUMNS, rows, unbroken=NARROW_COLUMNS[1:])
    return Group(shown, *(Text(printable(note)) for note in notes))


def _narrow_row(route: "RouteStats", now_ms: int) -> tuple[str, ...]:
    return (
        route.route,
        *_counts(route),
        age(route.oldest_due_age_ms),
        age(now_ms - route.held_since_ms) if route.held_since_ms else "-",
        str(route.shards),
    )


def _counts(route: "RouteStats") -> tuple[str, ...]:
    counts = (route.pending, route.ready, route.unack, route.retry, route.dead)
    return tuple(str(count) for count in counts)


def _row(route: "RouteStats") -> tuple[str, ...]:
    return (
        route.route,
        *_counts(route),
        f"{route.oldest_due_age_ms}ms" if route.oldest_due_age_ms else "-",
        format_instant(route.held_since_ms),
        str(route.shards),
        _note(route),
    )


def _note(route: "RouteStats") -> str:
    """Describe a route's fault; of several failing targets, the one that has failed longest."""
    if not route.configured:
        return "not in the configuration"
    if not route.held:
        return f"dead and rejected by their target: {route.rejected}" if route.rejected else ""
    first, *others = route.held
    kind = "dead-letter target" if first.dead_letter else "target"
    more = f" (and {len(others)} more)" if others else ""
    return f"{kind} {first.target}: {first.error}{more}"
