"""`duebridge dead`: the envelopes that no broker took."""

from typing import Annotated, Any

import msgspec
import typer

from duebridge.admin.dead import DeadFilter
from duebridge.admin.listing import read_cursor
from duebridge.admin.operator import Operator
from duebridge.cli.dead_options import (
    AfterOption,
    AllOption,
    BeforeOption,
    DryRunOption,
    ErrorClassOption,
    ErrorOption,
    IdsArgument,
    RateOption,
    ReasonOption,
    YesOption,
    check_choice,
    read_filter,
)
from duebridge.cli.dead_settling import Chosen, Plan, carry_out
from duebridge.cli.envelopes import IdArgument, RouteArgument, field_rows, value_cell
from duebridge.cli.exits import finish
from duebridge.cli.lines import json_value
from duebridge.cli.output import Output, OutputOption, complain, write_json, write_table
from duebridge.cli.pace import Pacer, parse_rate
from duebridge.cli.pages import CursorOption, LimitOption, Page, error_cell
from duebridge.cli.session import ConfigOption, load, opened_store
from duebridge.durations import format_instant, parse_duration_ms
from duebridge.receipt import Known, Shown

COLUMNS = ("id", "reason", "attempt", "error", "first failed", "last failed")

BodyOption = Annotated[bool, typer.Option("--body", help="Show the body too.")]
ReplayDelayOption = Annotated[
    str, typer.Option("--delay", help="Due after this time from now: 500ms, 2.5s, 15m, 2h, 3d.")
]


def ls(
    context: typer.Context,
    route: RouteArgument,
    reason: ReasonOption = None,
    error_class: ErrorClassOption = None,
    error: ErrorOption = None,
    before: BeforeOption = None,
    after: AfterOption = None,
    limit: LimitOption = 100,
    cursor: CursorOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """List the dead envelopes of a route, and why.

    Where the route names a dead-letter target, they leave the store once it has them. In JSON,
    instants are epoch milliseconds, and 0 where there is none. Where there are more, the last line
    is the cursor of the next page: in JSON {"cursor": "..."}, else a line on standard error.
    """
    settings = load(context, config)
    with opened_store(settings) as connection:
        operator = Operator(settings, connection)
        wanted = read_filter(operator, reason, error_class, error, before, after)
        start = None if cursor is None else read_cursor(cursor, route, "dead")
        places = operator.dead_places(route, wanted, after=start)
        page = Page(route, places, limit)
        page.show(COLUMNS, (_row(known) for known in page.envelopes), output)


def show(
    context: typer.Context,
    route: RouteArgument,
    envelope_id: IdArgument,
    body: BodyOption = False,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Show everything known of one dead envelope.

    The body is shown only with --body. In JSON, key, headers and body are as a line of send --jsonl
    has them: text, or {"base64": "AAE="}. Exits 1 where the envelope is not dead.
    """
    settings = load(context, config)
    with opened_store(settings) as connection:
        shown = Operator(settings, connection).show(route, envelope_id)
    if shown is None or shown.state != "dead":
        found = "the store knows none" if shown is None else f"it is {shown.state}"
        complain(f"duebridge: route {route}: expected a dead envelope {envelope_id!r}; {found}")
        finish(is_yes=False)
    elif output is Output.JSON:
        write_json(_as_json(shown, body))
    else:
        write_table(("field", "value"), _fields(shown, body))


def replay(
    context: typer.Context,
    route: RouteArgument,
    ids: IdsArgument = None,
    reason: ReasonOption = None,
    error_class: ErrorClassOption = None,
    error: ErrorOption = None,
    before: BeforeOption = None,
    after: AfterOption = None,
    is_all: AllOption = False,
    delay: ReplayDelayOption = "0s",
    rate: RateOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Schedule dead envelopes anew.

    It takes ids, or a filter, or --all. The attempt number goes on; failures begin again, and an
    expiry that is over is lifted. Exits 1 where one is unknown, or in_flight: on its way to the
    dead-letter target.
    """
    delay_ms = parse_duration_ms(delay, "--delay")
    pacer = Pacer(parse_rate(rate) if rate else None)
    settings = load(context, config)
    with opened_store(settings) as connection:
        operator = Operator(settings, connection)
        wanted = read_filter(operator, reason, error_class, error, before, after)
        chosen = _chosen(operator, route, ids, wanted, is_all)
        plan = Plan("replay", lambda batch: operator.replay(route, batch, delay_ms), pacer)
        carry_out(plan, chosen, output, is_dry_run=dry_run, is_agreed=yes)


def drop(
    context: typer.Context,
    route: RouteArgument,
    ids: IdsArgument = None,
    reason: ReasonOption = None,
    error_class: ErrorClassOption = None,
    error: ErrorOption = None,
    before: BeforeOption = None,
    after: AfterOption = None,
    is_all: AllOption = False,
    rate: RateOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Delete dead envelopes for good: nobody will ever get them.

    It takes ids, or a filter, or --all. Exits 1 where one is unknown, or in_flight: on its way to
    the dead-letter target.
    """
    pacer = Pacer(parse_rate(rate) if rate else None)
    settings = load(context, config)
    with opened_store(settings) as connection:
        operator = Operator(settings, connection)
        wanted = read_filter(operator, reason, error_class, error, before, after)
        chosen = _chosen(operator, route, ids, wanted, is_all)
        plan = Plan("drop", lambda batch: operator.drop(route, batch), pacer)
        carry_out(plan, chosen, output, is_dry_run=dry_run, is_agreed=yes)


def _chosen(
    operator: Operator, route: str, ids: list[str] | None, wanted: DeadFilter, is_all: bool
) -> Chosen:
    check_choice(ids or [], wanted, is_all)
    return Chosen(operator, route, ids or [], wanted)


def _row(known: Known) -> tuple[str, ...]:
    return (
        known.id,
        known.reason or "-",
        str(known.attempt),
        error_cell(known),
        format_instant(known.first_failed_at_ms),
        format_instant(known.last_failed_at_ms),
    )


def _as_json(shown: Shown, with_body: bool) -> dict[str, Any]:
    fields = msgspec.structs.asdict(shown)
    fields["key"] = json_value(shown.key)
    fields["headers"] = [(name, json_value(value)) for name, value in shown.headers]
    fields["body"] = json_value(shown.body)
    if not with_body:
        del fields["body"]
    return fields


def _fields(shown: Shown, with_body: bool) -> list[tuple[str, str]]:
    fields = _as_json(shown, with_body)
    properties = msgspec.to_builtins(fields.pop("properties"))
    headers = fields.pop("headers")
    fields |= {f"property {name}": value for name, value in properties.items()}
    return [
        *field_rows(fields),
        *((f"header {name}", value_cell(value)) for name, value in headers),
    ]
