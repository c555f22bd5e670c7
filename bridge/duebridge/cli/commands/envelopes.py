"""`duebridge cancel`, `reschedule`, `deliver-now` and `get`: envelopes by their ids."""

from collections import Counter
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from duebridge.cli.exits import finish, telling_what_is_done
from duebridge.cli.jsonl import FROM_STDIN, IdFilter, read_ids
from duebridge.cli.output import (
    Output,
    OutputOption,
    complain,
    ignoring_closed_output,
    printable,
    write,
    write_json,
    write_table,
)
from duebridge.cli.session import (
    AtOption,
    ConfigOption,
    DelayOption,
    IdArgument,
    RouteArgument,
    load,
    opened_operator,
    opened_producer,
)
from duebridge.cli.shown import FIELD_COLUMNS, BodyOption, field_rows, write_details
from duebridge.durations import format_instant, parse_instant_ms
from duebridge.envelope import checked_id, due_instant
from duebridge.errors import EnvelopeError, listed_counts
from duebridge.instants import parse_at

if TYPE_CHECKING:
    from duebridge.admin.operator import EnvelopeChange
    from duebridge.store.wire.replies import ChangeAnswer

CancelIdArgument = Annotated[
    str,
    typer.Argument(help="The envelope's id; - reads ids from standard input.", show_default=False),
]
EndedSinceOption = Annotated[
    datetime | None,
    typer.Option(
        help="With -: only envelopes that ended then or later, by the journal's lines.",
        parser=partial(parse_at, name="--ended-since"),
        metavar="<instant>",
    ),
]
IdsArgument = Annotated[list[str], typer.Argument(help="The envelopes' ids.", show_default=False)]


class StatusAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The status of one envelope after a change; `due_at_ms` if the envelope has a new one."""

    id: str
    route: str
    status: "ChangeAnswer"
    due_at_ms: int | None = None


def cancel(
    context: typer.Context,
    route: RouteArgument,
    envelope_id: CancelIdArgument,
    ended_since: EndedSinceOption = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Cancel an envelope, or many.

    The status "cancelled" means that it will never be delivered. Exits 1 if one is in flight,
    dead or unknown. Repeated after exit code 3, "unknown" may mean that the first try has cancelled
    it: events tells. With - as the id, standard input has an object with an "id" on each line, as
    ls and events print them with --output json; lines of other routes are skipped. A line that is
    no such object is reported, makes the exit code 1, and does not stop the others. --ended-since
    cleans up a restored store: it cancels the envelopes that ended after the backup. A gap since
    then, or a purge, is reported like such a line, since it has no ids.
    """
    from duebridge.scheduling.route_scheduler import find_route

    is_many = envelope_id == FROM_STDIN
    if ended_since is not None and not is_many:
        raise EnvelopeError("--ended-since: expected - as the id, for standard input")
    since = None if ended_since is None else parse_instant_ms(ended_since, "--ended-since")
    counts: Counter[str] = Counter()

    def refuse(why: str) -> None:
        counts["refused"] += 1
        complain(why)

    settings = load(context, config)
    find_route(settings, route)
    telling = telling_what_is_done(lambda: listed_counts(counts)) if is_many else nullcontext()
    with opened_producer(settings) as producer, telling:
        for one_id in read_ids(IdFilter(route, since), refuse) if is_many else (envelope_id,):
            status = producer.cancel(route, one_id)
            counts[status] += 1
            _show_answer(StatusAnswer(one_id, route, status), output)
    if not is_many and status == "unknown":
        _complain_of_unknown(route, one_id)
    if is_many:
        complain(listed_counts(counts) or "no line")
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

    It takes exactly one of --delay and --at, and prints the new due instant. Exits 1 if the
    envelope is in flight, dead or unknown; then nothing is changed.
    """
    from duebridge.scheduling.route_scheduler import find_route

    settings = load(context, config)
    find_route(settings, route)
    due_instant(delay, at)  # a usage mistake is told even while the store is away
    with opened_producer(settings) as producer:
        status = producer.reschedule(route, envelope_id, delay=delay, at=at)
        known = producer.get(route, envelope_id) if status == "rescheduled" else None
    due_at_ms = known.due_at_ms if known else None  # None: delivered since
    _show_answer(StatusAnswer(envelope_id, route, status, due_at_ms), output)
    finish(is_yes=status in ("rescheduled", "recorded"))


def deliver_now(
    context: typer.Context,
    route: RouteArgument,
    envelope_ids: IdsArgument,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Make envelopes due now, whatever their due instant or next try.

    The journal has it as rescheduled. Exits 1 if one is in flight, dead or unknown: of such
    envelopes nothing is changed. Dead ones are for `dead replay`.
    """
    ids = [checked_id(each) for each in envelope_ids]
    settings = load(context, config)

    def tell(answer: "EnvelopeChange") -> None:
        due_at_ms = answer.due_at_ms if answer.status == "rescheduled" else None
        _show_answer(StatusAnswer(answer.id, answer.route, answer.status, due_at_ms), output)

    with opened_operator(settings) as operator:
        answers = operator.deliver_now(route, ids, tell)
    finish(is_yes=all(answer.status in ("rescheduled", "recorded") for answer in answers))


def get(
    context: typer.Context,
    route: RouteArgument,
    envelope_id: IdArgument,
    body: BodyOption = False,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Show everything known of an envelope.

    The store is asked first, then the route's cold tier. The body is shown only with --body. Exits
    1 if neither knows the id. In JSON, instants are epoch milliseconds, 0 if there is none; key,
    headers and body have the form of a line of send --jsonl: text, or {"base64": "AAE="}.
    """
    checked_id(envelope_id)
    with opened_operator(load(context, config)) as operator:
        shown = operator.show(route, envelope_id)
        known = shown or operator.cold(route, envelope_id)
    if known is None:
        _complain_of_unknown(route, envelope_id)
        finish(is_yes=False)
    elif shown:
        write_details(shown, output, with_body=body)
    elif output is Output.JSON:
        write_json(known)
    else:
        write_table(FIELD_COLUMNS, field_rows(msgspec.structs.asdict(known)))


def _complain_of_unknown(route: str, envelope_id: str) -> None:
    known_by = f"delivered, cancelled or never sent: see `duebridge events {route}`"
    complain(f"duebridge: the store knows no envelope {envelope_id!r}: {known_by}")


def _show_answer(answer: StatusAnswer, output: Output) -> None:
    with ignoring_closed_output():
        if output is Output.JSON:
            write_json(answer)
        else:
            due = f"  due {format_instant(answer.due_at_ms)}" if answer.due_at_ms else ""
            write(f"{answer.status}  {printable(answer.id)}{due}")
