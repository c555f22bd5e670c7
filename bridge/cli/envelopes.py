"""One envelope by its id: cancel, reschedule, get."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import msgspec
import typer

from bridge.cli.completion import complete_route
from bridge.cli.exits import finish
from bridge.cli.instants import parse_at
from bridge.cli.lines import Base64
from bridge.cli.output import (
    Output,
    OutputOption,
    complain,
    printable,
    write,
    write_json,
    write_table,
)
from bridge.cli.session import ConfigOption, load, opened_producer, opened_store
from bridge.cold import ColdRows
from bridge.durations import format_instant
from bridge.producer import Producer

RouteArgument = Annotated[
    str,
    typer.Argument(help="The route's name.", show_default=False, autocompletion=complete_route),
]
IdArgument = Annotated[str, typer.Argument(help="The envelope's id.", show_default=False)]
DelayOption = Annotated[
    str | None, typer.Option(help="Due after this time from now: 500ms, 2.5s, 15m, 2h, 3d.")
]
AtOption = Annotated[
    datetime | None,
    typer.Option(
        help="Due at: RFC 3339 with an offset, or epoch milliseconds.",
        parser=parse_at,
        metavar="<instant>",
    ),
]


class Answer(msgspec.Struct, frozen=True):
    """What became of a wish about one envelope."""

    id: str
    route: str
    status: str


def cancel(
    context: typer.Context,
    route: RouteArgument,
    envelope_id: IdArgument,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Take an envelope back.

    The answer "cancelled" means that it will never be delivered. Exits 1 where it is in flight,
    dead or unknown.
    """
    with opened_producer(load(context, config)) as producer:
        status = producer.cancel(route, envelope_id)
    _show_answer(Answer(envelope_id, route, status), output)
    finish(is_yes=status in ("cancelled", "recorded"))


def reschedule(
    context: typer.Context,
    route: RouteArgument,
    envelope_id: IdArgument,
    delay: DelayOption = None,
    at: AtOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Give an envelope another due instant.

    It takes exactly one of --delay and --at. Exits 1 where it is in flight, dead or unknown;
    nothing was changed then.
    """
    with opened_producer(load(context, config)) as producer:
        status = producer.reschedule(route, envelope_id, delay=delay, at=at)
    _show_answer(Answer(envelope_id, route, status), output)
    finish(is_yes=status in ("rescheduled", "recorded"))


def get(
    context: typer.Context,
    route: RouteArgument,
    envelope_id: IdArgument,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Show what is known of an envelope.

    The store is asked, and then the route's cold tier. Exits 1 where neither knows it. In JSON,
    instants are epoch milliseconds, and 0 where there is none.
    """
    settings = load(context, config)
    with opened_store(settings) as connection:
        known = Producer(settings, connection).get(route, envelope_id)
        if known is None:
            known = ColdRows(settings, connection, settings.routes[route]).get(envelope_id)
    if known is None:
        known_by = f"delivered, cancelled or never sent: see `duebridge events {route}`"
        complain(f"duebridge: the store knows no envelope {envelope_id!r}: {known_by}")
        finish(is_yes=False)
    elif output is Output.JSON:
        write_json(known)
    else:
        write_table(("field", "value"), field_rows(msgspec.structs.asdict(known)))


def _show_answer(answer: Answer, output: Output) -> None:
    if output is Output.JSON:
        write_json(answer)
    else:
        write(f"{answer.status}  {printable(answer.id)}")


def field_rows(fields: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the fields for people; the unit of an instant is in its value then."""
    return [
        (name.removesuffix("_ms"), format_instant(value))
        if name.endswith("_at_ms") and isinstance(value, int)
        else (name, value_cell(value))
        for name, value in fields.items()
    ]


def value_cell(value: object) -> str:
    """Return a value for people, a dash for none."""
    if isinstance(value, Base64):
        return f"base64 {value.base64}"
    return "-" if value is None or value == "" else str(value)
