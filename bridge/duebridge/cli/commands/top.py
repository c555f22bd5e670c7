"""`duebridge top`: routes, rates, held targets and what falls due, on one screen."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from duebridge.cli.commands.stats import parse_pause_s, rounds
from duebridge.cli.output import printable, write_frames, write_lines
from duebridge.cli.plots import WIDTH, PlotCharacters, age, compact, cut, marks_of, sparkline
from duebridge.cli.session import ConfigOption, RouteFilter, load, opened_operator
from duebridge.durations import format_instant

if TYPE_CHECKING:
    from rich.text import Text

    from duebridge.admin.held import HeldStats
    from duebridge.admin.histogram import DueBucket
    from duebridge.admin.operator import Operator
    from duebridge.admin.rates import RouteRates
    from duebridge.admin.route_stats import RouteStats
    from duebridge.store.workers import WorkerRecord

COLUMNS = ("route", "pending", "ready", "unack", "retry", "dead", "oldest", "in/s", "out/s")
WIDTHS = (24, 7, 6, 6, 6, 6, 7, 5, 5)  # and a space between: 80
BARS = 60  # of the next hour: a minute each
OVER_S = 10
MOST_PROBLEMS = 8

OnceOption = Annotated[bool, typer.Option("--once", help="Print one frame.")]
EveryOption = Annotated[str, typer.Option(help="The interval.")]


class View(NamedTuple):
    """The data of one frame, read at `now_ms` of the store."""

    now_ms: int
    routes: Sequence["RouteStats"]
    rates: Sequence["RouteRates"]
    workers: "Sequence[WorkerRecord] | None"
    past: int
    hour: "Sequence[DueBucket]"


def top(
    context: typer.Context,
    route: RouteFilter = None,
    once: OnceOption = False,
    every: EveryOption = "2s",
    config: ConfigOption = None,
) -> None:
    """Show routes, rates, held targets and what falls due, until Ctrl-C.

    Of each route: its envelopes by state, how long the oldest has been due, and how many a second
    were accepted (in) and delivered (out) in the last 10 seconds. Below are targets that fail and
    brokers that a worker does not reach, each with the broker's own error, then what falls
    due in each minute of the next hour. It fits 80 columns. Ctrl-C exits 130.
    """
    pause_s = parse_pause_s(every)
    marks = marks_of(sys.stdout.encoding)
    settings = load(context, config)
    names = [route] if route else []
    with opened_operator(settings) as operator:

        def read() -> "Text":
            return frame(read_view(operator, names), marks)

        if once:
            write_lines(read())
        else:
            write_frames(rounds(read, pause_s, partial(_with_note, marks=marks)))


def read_view(operator: "Operator", names: Sequence[str]) -> View:
    """Read one frame; raises `ConfigError` for an unknown route, and `StoreError`."""
    from duebridge.admin.histogram import due_histogram, edges
    from duebridge.admin.rates import rates

    routes = operator.stats(names)
    known = [each.route for each in routes]
    now_ms = operator.now_ms(*known)
    past, *hour = due_histogram(operator, known, [0, *edges(now_ms, "hour", BARS)])
    return View(now_ms, routes, rates(operator, known, OVER_S), operator.workers(), past.due, hour)


def _with_note(last: "Text", error: Exception, marks: PlotCharacters) -> "Text":
    why = cut(printable(f"no answer of the store: {error}"), WIDTH, marks)
    return last + "\n" + _line(why, "red")


def frame(view: View, marks: PlotCharacters) -> "Text":
    """Return a frame of lines of at most 80 columns."""
    from rich.text import Text

    lines = [
        *_head(view),
        *(_route_line(*each, marks) for each in zip(view.routes, view.rates, strict=True)),
        *_problems(view, marks),
        *_hour(view, marks),
    ]
    return Text("\n").join(lines)


def _line(text: str, style: str = "") -> "Text":
    from rich.text import Text

    return Text(text, style=style, no_wrap=True)


def _head(view: View) -> "Iterator[Text]":
    workers = "unknown" if view.workers is None else str(len(view.workers))
    now = format_instant(view.now_ms)
    yield _line(f"duebridge  {now}  workers: {workers}", "bold")
    yield _line("")
    yield _line(_cells(COLUMNS), "bold")


def _cells(cells: Sequence[str]) -> str:
    first, *rest = (
        cell.ljust(width) if place == 0 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, WIDTHS, strict=True))
    )
    return " ".join([first, *rest])


def _route_line(stats: "RouteStats", rates: "RouteRates", marks: PlotCharacters) -> "Text":
    counts = (stats.pending, stats.ready, stats.unack, stats.retry, stats.dead)
    cells = (
        cut(printable(stats.route), WIDTHS[0], marks),
        *map(compact, counts),
        age(stats.oldest_due_age_ms),
        compact(rates.accepted_per_s),
        compact(rates.delivered_per_s),
    )
    return _line(_cells(cells), "red" if stats.held else "" if stats.configured else "dim")


def _problems(view: View, marks: PlotCharacters) -> "Iterator[Text]":
    """Yield a line for each cause that keeps envelopes from being delivered."""
    texts = list(_problem_texts(view))
    if texts:
        yield _line("")
    for text in texts[:MOST_PROBLEMS]:
        yield _line(cut(printable(text), WIDTH, marks), "red")
    if len(texts) > MOST_PROBLEMS:
        yield _line(f"and {len(texts) - MOST_PROBLEMS} more: see duebridge doctor", "red")


def _problem_texts(view: View) -> Iterator[str]:
    from duebridge.admin.held import count_serving, stopped_lanes

    held = [each for route in view.routes for each in route.held]
    for target in dict.fromkeys(held):
        yield _held_text(target, view.now_ms)
    for lane in stopped_lanes(view.workers or ()):
        yield f"broker {lane.broker}: {lane.host} (pid {lane.pid}) does not reach it: {lane.error}"
    for route in view.routes:
        if not route.configured:
            yield f"{route.route}: not in the configuration"
    if view.workers is None:
        return  # our user may not read what they say
    for route in view.routes:
        if route.oldest_due_age_ms and not count_serving(view.workers, route.route):
            yield f"{route.route}: some are due, and no worker serves it"


def _held_text(held: "HeldStats", now_ms: int) -> str:
    kind = "dead letters of" if held.dead_letter else "held"
    waits = f"{compact(held.waiting)} wait"
    return f"{kind} {held.target} for {age(now_ms - held.since_ms)}, {waits}: {held.error}"


def _hour(view: View, marks: PlotCharacters) -> "Iterator[Text]":
    counts = [each.due for each in view.hour]
    due = view.past + sum(each.ready + each.unack for each in view.routes)
    yield _line("")
    yield _line(f"due in the next hour, by minute; due already: {compact(due)}", "bold")
    yield _line(f"{sparkline(counts, marks)}| most {compact(max(counts, default=0))}/min")
    yield _line(f"now{'+15m':>14}{'+30m':>15}{'+45m':>15}{'+1h':>14}", "dim")
