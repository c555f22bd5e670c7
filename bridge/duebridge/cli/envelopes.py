"""One envelope by its id: cancel, reschedule, get."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import msgspec
import typer

from duebridge.admin.cold_rows import ColdRows
from duebridge.cli.completion import complete_route
from duebridge.cli.exits import finish
from duebridge.cli.ids import Wanted, read_ids
from duebridge.cli.instants import parse_at
from duebridge.cli.lines import FROM_STDIN, Base64
from duebridge.cli.output import (
    Output,
    OutputClosed,
    OutputOption,
    complain,
    discard_output,
    printable,
    write,
    write_json,
    write_table,
)
from duebridge.cli.session import ConfigOption, load, opened_producer, opened_store
from duebridge.durations import format_instant, parse_instant_ms
from duebridge.errors import EnvelopeError
from duebridge.producer import Producer

RouteArgument = Annotated[
    str,
    typer.Argument(help="The route's name.", show_default=False, autocompletion=complete_route),
]
IdArgument = Annotated[str, typer.Argument(help="The envelope's id.", show_default=False)]
DelayOption = Annotated[
    str | None, typer.Option(help="Due after this time from now: 500ms, 2.5s, 15m, 2h, 3d.")
]
CancelIdArgument = Annotated[
    str, typer.Argument(help="The envelope's id; - for standard input.", show_default=False)
]
EndedSinceOption = Annotated[
    datetime | None,
    typer.Option(
        help="With -: of lines of the journal, only what ended then or later.",
        parser=parse_at,
        metavar="<instant>",
    ),
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
    envelope_id: CancelIdArgument,
    ended_since: EndedSinceOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Take an envelope back, or many.

    The answer "cancelled" means that it will never be delivered. Exits 1 where one is in flight,
    dead or unknown. With - as the id, standard input has an object with an "id" on each line, as
    ls and events print them with --output json; lines of other routes are passed over. With
    --ended-since it takes out of a store that was restored what ended after its backup.
    """
    is_many = envelope_id == FROM_STDIN
    if ended_since is not None and not is_many:
        raise EnvelopeError("--ended-since: expected - as the id, for standard input")
    since = None if ended_since is None else parse_instant_ms(ended_since, "--ended-since")
    counts: Counter[str] = Counter()
    with opened_producer(load(context, config)) as producer:
        for each in read_ids(Wanted(route, since)) if is_many else (envelope_id,):
            status = producer.cancel(route, each)
            counts[status] += 1
            _show_answer(Answer(each, route, status), output)
    if is_many:
        complain(", ".join(f"{count} {status}" for status, count in counts.items()) or "no line")
    finish(is_yes=not counts.keys() - {"cancelled", "recorded"})


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
    try:
        if output is Output.JSON:
            write_json(answer)
        else:
            write(f"{answer.status}  {printable(answer.id)}")
    except OutputClosed:  # nobody reads the answers; the rest is done all the same
        discard_output()


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
