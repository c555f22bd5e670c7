"""`duebridge events`: the journal, one line per transition of an envelope."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from duebridge.cli.commands.ls import MOST_LISTED
from duebridge.cli.output import (
    STDOUT,
    Output,
    OutputOption,
    complain,
    is_terminal,
    printable,
    write,
    write_json,
)
from duebridge.cli.session import AWAY, ConfigOption, RouteFilter, load, opened_store
from duebridge.cli.shown import error_text
from duebridge.durations import format_instant
from duebridge.errors import ConfigError, StoreUnavailable
from duebridge.instants import InstantOrOffset, parse_ago

if TYPE_CHECKING:
    from duebridge.admin.events import EnvelopeEvent, EventReader, LeaveOut
    from duebridge.admin.operator import Operator
    from duebridge.store.journal import Journal
    from duebridge.store.keys import Shard

NEWEST = 100  # events, without --limit and --since
POLL_EVERY_S = 0.5
PATIENCE_S = 10.0  # a failover takes less
OLDER = "duebridge: older events are not printed; --since prints all from an instant on"

FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Keep printing until Ctrl-C, which exits 130.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(help="Events since a duration ago (15m), or an instant as for send --at."),
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MOST_LISTED,
        help=f"Only the newest events; {NEWEST} by default, unless --since is given.",
    ),
]


def events(
    context: typer.Context,
    route: RouteFilter = None,
    follow: FollowOption = False,
    since: SinceOption = None,
    limit: LimitOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Print what happened to the envelopes, oldest first.

    All shards are merged by time. The kinds are accepted, replaced, rescheduled, demoted, retried,
    delivered, expired, dead, shunted, replayed, dropped, cancelled, and purged of a whole route. A
    retry tells what failed, whether it counts towards max_attempts, and when the next try is; an
    envelope set aside for a target is retried once the target answers. An event caused by a command
    names who ran it. The journal is capped: a gap says how many entries were cut before they were
    read. --limit applies to past events, not to those that --follow adds. --follow prints events of
    new routes too; it waits for a store that restarts, fails over or refuses its password, says so
    once, and goes on behind the last event that it printed. Shards of a Cluster that stay away for
    10 s, or are away as it starts, are left out, which it says; their events follow, out of order,
    once they are back: without --since, those since it started. Where its JSON lines are kept,
    start it with --since, and again with an instant before the last line: without it the older
    events are missing.
    """
    from duebridge.admin.events import EventReader, Purges, leave_nothing_out
    from duebridge.admin.operator import Operator
    from duebridge.store.purges import PurgeLog

    start = None if since is None else parse_ago(since, "--since")
    settings = load(context, config)
    with opened_store(settings) as connection:
        operator = Operator(settings, connection)
        purges = Purges(PurgeLog(connection, settings.store.namespace), route)
        reader = EventReader(operator.journals(route), purges)
        outage = Outage(reader)
        leave_out = outage.leave_out_at_once if follow else leave_nothing_out
        with outage.starting():
            found = _past(operator, reader, start, limit, leave_out)
            is_kept = follow and output is Output.JSON and not is_terminal(STDOUT)
            is_whole = start is not None or limit is not None
            _show(found if is_whole else _newest(found, is_kept=is_kept), output)
        if follow:
            _follow(reader, lambda: operator.journals(route), output, outage)


def _past(
    operator: "Operator",
    reader: "EventReader",
    since: InstantOrOffset | None,
    limit: int | None,
    leave_out: "LeaveOut",
) -> "Iterable[EnvelopeEvent]":
    now_ms = operator.now_ms()
    if since is not None:
        reader.go_to_instant(since.at_ms(now_ms))
        return reader.new(leave_out) if limit is None else reader.newest(limit, leave_out)
    most = NEWEST + 1 if limit is None else limit
    reader.go_to_newest(most)
    found = reader.newest(most, leave_out)
    reader.begin_left_out_at(now_ms)
    return found


def _newest(found: "Iterable[EnvelopeEvent]", *, is_kept: bool) -> "list[EnvelopeEvent]":
    events = list(found)
    if is_kept and len(events) > NEWEST:
        complain(OLDER)
    return events[-NEWEST:]


def _follow(
    reader: "EventReader",
    journals: "Callable[[], list[Journal]]",
    output: Output,
    outage: "Outage",
) -> NoReturn:
    """Print what comes, of new routes too, but for what is away."""
    while True:
        time.sleep(POLL_EVERY_S)
        with outage.reading():
            _show(_unread(reader, journals, outage), output)


def _unread(
    reader: "EventReader", journals: "Callable[[], list[Journal]]", outage: "Outage"
) -> "Iterator[EnvelopeEvent]":
    try:
        with suppress(ConfigError):  # the only route was purged
            reader.add(journals())
    except StoreUnavailable as error:
        outage.leave_out(error)
    yield from reader.new(outage.leave_out)


class Outage:
    """Waits for what is away, at most `PATIENCE_S`; then leaves it out. Says either once."""

    def __init__(self, reader: "EventReader") -> None:
        self._reader = reader
        self._since: float | None = None
        self._is_met = False
        self._left_out: set[Shard] = set()
        self._told = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around each reading: it ends an outage if it has met none."""
        self._is_met = False
        self._left_out.clear()
        try:
            yield
        except AWAY as error:
            if self._since is None:
                complain(f"duebridge: {error}; waiting for the store")
            self._since = self._since or time.monotonic()
            return
        self._tell_left_out()
        if not self._is_met:
            self._since, self._told = None, 0

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Around the first reading: what it left out is left out until it is back."""
        yield
        if self._left_out:
            self._since = time.monotonic() - PATIENCE_S
            self._tell_left_out()

    def leave_out_at_once(self, error: StoreUnavailable, shard: "Shard | None" = None) -> None:
        """Leave a shard out at the start; raise its error if it is the last one."""
        self._left_out |= {shard} if shard else set()
        if len(self._left_out) == self._reader.shards:
            raise error

    def leave_out(self, error: StoreUnavailable, shard: "Shard | None" = None) -> None:
        """Leave a shard out, or what else is away; raise its error while we are patient."""
        if self._since is None or time.monotonic() - self._since < PATIENCE_S:
            raise error
        self._is_met = True
        self._left_out |= {shard} if shard else set()

    def _tell_left_out(self) -> None:
        away, every = len(self._left_out), self._reader.shards
        if self._told < away < every:
            complain(f"duebridge: going on without {away} of {every} shards until they are back")
            self._told = away


def _show(found: "Iterable[EnvelopeEvent]", output: Output) -> None:
    for event in found:
        if output is Output.JSON:
            write_json(event)
        else:
            write(_line(event))


def _line(event: "EnvelopeEvent") -> str:
    from duebridge.admin.events import GAP, PURGED

    parts = [f"{format_instant(event.at_ms):<24}", f"{event.kind:<11}", event.route]
    if event.kind == GAP:
        parts.append(f"{event.lost_entries} entries of shard {event.shard} were cut by the cap")
        return "  ".join(parts)
    if event.kind == PURGED:
        by = [f"by {event.by}"] if event.by else []
        return "  ".join([*parts, f"{event.envelopes} envelopes", *by])
    parts += [printable(event.id), f"due {format_instant(event.due_at_ms)}"]
    if event.attempt is not None:
        parts.append(f"attempt {event.attempt}")
    error = error_text(event.error_class, event.error_message)
    parts += filter(None, (event.reason, error))
    if event.counted is not None:
        parts.append("counted" if event.counted else "not counted")
    if event.next_at_ms is not None:
        parts.append(f"next try by {format_instant(event.next_at_ms)}")
    if event.by:
        parts.append(f"by {event.by}")
    return "  ".join(map(printable, parts))
