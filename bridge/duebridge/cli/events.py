"""`duebridge events`: the journal, a line for each transition of each envelope."""

import time
from collections.abc import Iterable
from typing import Annotated

import typer

from duebridge.admin.events import GAP, Event, Events
from duebridge.admin.operator import Operator
from duebridge.cli.completion import complete_route
from duebridge.cli.instants import parse_ago
from duebridge.cli.output import Output, OutputOption, printable, write, write_json
from duebridge.cli.session import ConfigOption, load, opened_store
from duebridge.durations import format_instant

NEWEST = 100  # events, where neither --limit nor --since says what to begin with
LOOK_UP_S = 0.5

RoutesArgument = Annotated[
    str | None,
    typer.Argument(
        help="The route's name; without one, all routes.", autocompletion=complete_route
    ),
]
FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C, which exits 130.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(help="What happened since: a time ago (15m), or an instant as of send --at."),
]
LimitOption = Annotated[
    int | None,
    typer.Option(min=0, help=f"Only the newest so many; {NEWEST} if there is no --since."),
]


def events(
    context: typer.Context,
    route: RoutesArgument = None,
    follow: FollowOption = False,
    since: SinceOption = None,
    limit: LimitOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Print what happened to the envelopes, oldest first.

    All shards are merged by time. The kinds are accepted, replaced, delivered, retried, dead,
    expired, shunted, cancelled, rescheduled, replayed and dropped. The journal has a cap: a gap
    says how many of its entries were cut before they were read. --limit cuts what lies there, never
    what --follow adds.
    """
    settings = load(context, config)
    with opened_store(settings) as connection:
        operator = Operator(settings, connection)
        journals = operator.events(route)
        _show(_past(operator, journals, since, limit), output)
        while follow:
            time.sleep(LOOK_UP_S)
            _show(journals.new(), output)


def _past(
    operator: Operator, journals: Events, since: str | None, limit: int | None
) -> Iterable[Event]:
    if since is None:
        limit = NEWEST if limit is None else limit
        journals.go_to_newest(limit)
    else:
        journals.go_to_instant(parse_ago(since, "--since", operator.now_ms()))
    return journals.new() if limit is None else journals.newest(limit)


def _show(found: Iterable[Event], output: Output) -> None:
    for event in found:
        if output is Output.JSON:
            write_json(event)
        else:
            write(_line(event))


def _line(event: Event) -> str:
    parts = [f"{format_instant(event.at_ms):<24}", f"{event.kind:<11}", event.route]
    if event.kind == GAP:
        parts.append(f"{event.lost_entries} entries of shard {event.shard} were cut by the cap")
        return "  ".join(parts)
    parts += [printable(event.id), f"due {format_instant(event.due_at_ms)}"]
    if event.attempt is not None:
        parts.append(f"attempt {event.attempt}")
    return "  ".join([*parts, *([event.reason] if event.reason else [])])
