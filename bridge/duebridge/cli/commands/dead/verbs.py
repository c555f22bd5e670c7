"""`duebridge dead`: list, show, replay, drop and shunt the envelopes that no broker accepted."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from duebridge.cli.commands.dead.selection import (
    DeadSelection,
    FilterOptions,
    SettleOptions,
    expand_options,
)
from duebridge.cli.commands.dead.settling import (
    RateLimiter,
    SettleBatch,
    SettlePlan,
    Spread,
    carry_out,
    parse_rate,
)
from duebridge.cli.commands.ls import CursorOption, EnvelopePage, LimitOption, error_cell
from duebridge.cli.exits import finish, telling_what_is_done
from duebridge.cli.output import Output, OutputOption, complain, write
from duebridge.cli.session import (
    DURATIONS,
    ConfigOption,
    IdArgument,
    RouteArgument,
    load,
    opened_operator,
)
from duebridge.cli.shown import BodyOption, write_details
from duebridge.durations import format_instant, parse_duration_ms
from duebridge.receipt import Known

if TYPE_CHECKING:
    from duebridge.admin.operator import Operator, TellSettled

COLUMNS = ("id", "reason", "attempt", "error", "first failed", "last failed")

ReplayDelayOption = Annotated[
    str, typer.Option("--delay", help=f"Due after this delay: {DURATIONS}.")
]
SpreadOption = Annotated[
    str, typer.Option("--spread", help="Due one after the other, evenly over this time: 10m.")
]


@expand_options
def ls(
    context: typer.Context,
    route: RouteArgument,
    filters: FilterOptions,
    limit: LimitOption = 100,
    cursor: CursorOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """List the dead envelopes of a route, and why.

    On a route with a dead-letter target they leave the store once that target confirmed them; read
    them there. In JSON, instants are epoch milliseconds, 0 if there is none. If there are more, the
    last line is the cursor of the next page: in JSON {"cursor": "..."}, else a line on standard
    error.
    """
    from duebridge.admin.dead import list_dead
    from duebridge.admin.listing import read_cursor

    conditions = filters.read()
    start = None if cursor is None else read_cursor(cursor, route, "dead")
    settings = load(context, config)
    with opened_operator(settings) as operator:
        listed = list_dead(operator, route, conditions.filter(operator), after=start)
        EnvelopePage(route, listed, limit).show(COLUMNS, _row, output)


def show(
    context: typer.Context,
    route: RouteArgument,
    envelope_id: IdArgument,
    body: BodyOption = False,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Show everything known of one dead envelope.

    The body is shown only with --body. In JSON, key, headers and body have the form of a line of
    send --jsonl: text, or {"base64": "AAE="}. Exits 1 if the envelope is not dead.
    """
    settings = load(context, config)
    with opened_operator(settings) as operator:
        shown = operator.show(route, envelope_id)
    if shown is None or shown.state != "dead":
        found = "the store knows none" if shown is None else f"it is {shown.state}"
        complain(f"duebridge: route {route}: expected a dead envelope {envelope_id!r}; {found}")
        finish(is_yes=False)
    else:
        write_details(shown, output, with_body=body)


@expand_options
def replay(
    context: typer.Context,
    route: RouteArgument,
    options: SettleOptions,
    delay: ReplayDelayOption = "0s",
    spread: SpreadOption = "0s",
) -> None:
    """Schedule dead envelopes again.

    It takes ids, or a filter, or --all. With --spread the target does not get all of them at once:
    the n-th of N, from 0, is due n/N of that time after --delay. The attempt number goes on;
    failures start again at 0, and an expiry in the past is removed. Exits 1 if an id is not dead,
    unknown, or in_flight: on its way to the dead-letter target.
    """
    waits = Spread(parse_duration_ms(delay, "--delay"), parse_duration_ms(spread, "--spread"))
    _settle(
        context,
        route,
        options,
        "replay",
        lambda op, batch, tell: op.replay(route, batch.ids, *waits.of(batch), tell),
        is_counted=waits.spread_ms > 0,
    )


@expand_options
def drop(context: typer.Context, route: RouteArgument, options: SettleOptions) -> None:
    """Delete dead envelopes for good.

    It takes ids, or a filter, or --all. Exits 1 if an id is unknown, not dead, or in_flight: on its
    way to the dead-letter target.
    """
    _settle(
        context, route, options, "drop", lambda op, batch, tell: op.drop(route, batch.ids, tell)
    )


def shunt(context: typer.Context, route: RouteArgument, config: ConfigOption = None) -> None:
    """Try dead letters again that their target rejected.

    Such a letter stays in the store until its target or the route's dead_letter has changed.
    Exits 1 if there is none.
    """
    settings = load(context, config)
    counts: list[int] = []
    with (
        opened_operator(settings) as operator,
        telling_what_is_done(lambda: f"{sum(counts)} are tried again" if counts else ""),
    ):
        operator.shunt(route, counts.append)
    write(f"dead letters that are tried again: {sum(counts)}")
    finish(is_yes=bool(counts))


def _settle(
    context: typer.Context,
    route: str,
    options: SettleOptions,
    verb: str,
    settle: "Callable[[Operator, SettleBatch, TellSettled], object]",
    *,
    is_counted: bool = False,
) -> None:
    limiter = RateLimiter(parse_rate(options.rate) if options.rate else None)
    conditions = options.read()
    settings = load(context, options.config)
    with opened_operator(settings) as operator:
        wanted = conditions.filter_until_now(operator)
        selection = DeadSelection(operator, route, options.ids or [], wanted)
        plan = SettlePlan(verb, partial(settle, operator), limiter, is_counted)
        carry_out(
            plan, selection, options.output, is_dry_run=options.dry_run, is_agreed=options.yes
        )


def _row(known: Known) -> tuple[str, ...]:
    return (
        known.id,
        known.reason or "-",
        str(known.attempt),
        error_cell(known),
        format_instant(known.first_failed_at_ms),
        format_instant(known.last_failed_at_ms),
    )
