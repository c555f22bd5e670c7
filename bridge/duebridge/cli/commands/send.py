"""`duebridge send`: one envelope from the command line, or a stream of them on standard input.

A batch of a stream is whatever has arrived, up to `SCHEDULE_ROWS` lines: a slow stream is not
delayed, a fast one is sent in bulk, and memory holds one batch. A refused line stops no other.
"""

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from duebridge.cli.exits import finish, telling
from duebridge.cli.jsonl import (
    FROM_STDIN,
    Line,
    RejectFile,
    opened_rejects,
    opened_stdin,
    read_batches,
)
from duebridge.cli.output import (
    Output,
    OutputOption,
    complain,
    ignoring_closed_output,
    shown_progress,
    write,
    write_json,
)
from duebridge.cli.session import (
    AtOption,
    ConfigOption,
    DelayOption,
    RouteArgument,
    load,
    opened_producer,
)
from duebridge.durations import format_instant
from duebridge.envelope import Envelope, EnvelopeFields
from duebridge.errors import EnvelopeError
from duebridge.instants import parse_expires
from duebridge.jsonl import is_empty, parse_line
from duebridge.receipt import Receipt
from duebridge.store.batching import SCHEDULE_ROWS

if TYPE_CHECKING:
    from duebridge.producer import OnConflict, Producer

_STORED = ("accepted", "duplicate", "replaced")
_ENDED = ("cancelled", "dead")


class ConflictChoice(StrEnum):
    """What to do if the id lives with other content."""

    REFUSE = "refuse"
    REPLACE = "replace"


def send(
    context: typer.Context,
    route: RouteArgument,
    body: Annotated[
        str | None, typer.Argument(help="The body as text; - reads standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the body from this file.")] = None,
    delay: DelayOption = None,
    at: AtOption = None,
    key: Annotated[
        bytes | None,
        typer.Option(help="The message key; Kafka only.", parser=os.fsencode, metavar="<text>"),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="A header; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    envelope_id: Annotated[
        str | None,
        typer.Option("--id", help="The id, random by default; resent, it is stored once."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="Do not deliver after this delay or instant (as --at).")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option(help="Attempts before it is dead; the route's by default.")
    ] = None,
    content_type: Annotated[str | None, typer.Option(help="Such as application/json.")] = None,
    on_conflict: Annotated[
        ConflictChoice, typer.Option(help="What to do if the id lives with other content.")
    ] = ConflictChoice.REFUSE,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="With -: read one envelope per line, as JSON.")
    ] = False,
    rejects: Annotated[
        Path | None,
        typer.Option(help="With --jsonl: write refused lines here, each below its reason."),
    ] = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Schedule an envelope, or a stream of them.

    It takes a body, and exactly one of --delay and --at. Exits 0 for accepted, duplicate and
    replaced, 1 for conflict, in_flight, cancelled or dead (how a remembered id ended), and for any
    refused line. A line of --jsonl has the fields of the Python API: body (text, or {"base64":
    "AAE="}) or json (any JSON value), delay or at, id, key, headers and so on. Durations are 500ms,
    2.5s, 15m, 1h30m, 3d, 2w; instants are RFC 3339 with an offset, or epoch milliseconds. A refused
    line is reported and does not stop the others; in JSON it has its object like any other, with an
    empty id if the line is no envelope. The file of --rejects can be edited and sent again, since
    lines that begin with # are comments. Ctrl-C reports which lines are stored; sent again, lines
    with an id of their own are duplicates.
    """
    from duebridge.scheduling.limits import RouteLimits
    from duebridge.scheduling.route_scheduler import find_route

    fields = _fields(delay, at, key, header, envelope_id, expires, max_attempts, content_type)
    settings = load(context, config)
    find_route(settings, route)
    if jsonl:
        _check_alone(body, file, fields)
        with opened_rejects(rejects) as kept, opened_producer(settings) as producer:
            sender = LineSender(producer, route, on_conflict.value, output, kept)
            sender.send_all()
        finish(is_yes=not sender.refused)
    if rejects is not None:
        raise EnvelopeError("--rejects: expected --jsonl beside it")
    content = _body(body, file)
    # A mistake is told even while the store is away.
    RouteLimits.of(settings, settings.routes[route]).check(Envelope.new(content, **fields))
    with opened_producer(settings) as producer:
        receipt = producer.schedule(route, content, on_conflict=on_conflict.value, **fields)
    show_receipt(receipt, output)
    if receipt.status in _ENDED:
        complain(_why_not(receipt))
    finish(is_yes=is_stored(receipt))


class LineSender:
    """Sends lines in batches as they arrive; counts the stored and the refused ones."""

    def __init__(
        self,
        producer: "Producer",
        route: str,
        on_conflict: "OnConflict",
        output: Output,
        rejects: RejectFile,
    ) -> None:
        self.stored = 0
        self.refused = 0
        self._next_line = 1
        self._producer = producer
        self._route = route
        self._on_conflict = on_conflict
        self._output = output
        self._rejects = rejects

    def send_all(self) -> None:
        """Send standard input to its end.

        Raises `StoreError`, and `OSError` of the output, which say what is stored.
        """
        with (
            telling(self._progress),
            opened_stdin() as lines,
            shown_progress("lines sent") as advance,
        ):
            for batch in read_batches(lines, SCHEDULE_ROWS):
                self._send(batch, advance)
        if self.refused:
            complain(f"{self.stored} lines stored, {self.refused} refused")

    def _send(self, batch: Sequence[Line], advance: Callable[[int], None]) -> None:
        lines = [line for line in batch if not is_empty(line.text)]
        parsed = [self._parse(line) for line in lines]
        envelopes = [each for each in parsed if isinstance(each, Envelope)]
        receipts = self._producer.schedule_many(
            self._route, envelopes, on_conflict=self._on_conflict
        )
        self._next_line = batch[-1].number + 1
        self.stored += sum(map(is_stored, receipts))
        of_envelopes = iter(receipts)
        for line, each in zip(lines, parsed, strict=True):
            self._show(line, next(of_envelopes) if isinstance(each, Envelope) else each)
        advance(len(batch))

    def _parse(self, line: Line) -> Envelope | Receipt:
        """Return the envelope of a line, or the receipt of one that has none."""
        try:
            return parse_line(line.text)
        except EnvelopeError as error:
            return Receipt("", self._route, 0, "refused", str(error))

    def _show(self, line: Line, receipt: Receipt) -> None:
        if not is_stored(receipt):
            self._refuse(line, _why_not(receipt))
        if not receipt.id and self._output is not Output.JSON:
            return  # a table lists envelopes
        if receipt.error:
            error = f"line {line.number}: {receipt.error}"
            receipt = msgspec.structs.replace(receipt, error=error)
        with ignoring_closed_output():
            show_receipt(receipt, self._output)

    def _refuse(self, line: Line, why: str) -> None:
        self.refused += 1
        self._rejects.keep(line, why)
        complain(f"line {line.number}: {why}")

    def _progress(self) -> str:
        return (
            f"{self.stored} lines stored, {self.refused} refused;"
            f" lines before {self._next_line} are done, later ones may not be stored"
        )


def is_stored(receipt: Receipt) -> bool:
    """Whether the store has the envelope as it was given, or it was delivered before."""
    return receipt.status in _STORED


def _why_not(receipt: Receipt) -> str:
    ended = receipt.status in _ENDED
    again = "; it ended so before, --on-conflict replace schedules it again" if ended else ""
    return receipt.error or f"{receipt.status}: id {receipt.id}{again}"


def show_receipt(receipt: Receipt, output: Output) -> None:
    """Write a receipt: status, due instant and id, or all its fields in JSON."""
    if output is Output.JSON:
        write_json(receipt)
    else:
        write(f"{receipt.status:<9}  {format_instant(receipt.due_at_ms):<24}  {receipt.id}")


def _fields(
    delay: str | None,
    at: datetime | None,
    key: bytes | None,
    header: list[str] | None,
    envelope_id: str | None,
    expires: str | None,
    max_attempts: int | None,
    content_type: str | None,
) -> EnvelopeFields:
    return {
        "delay": delay,
        "at": at,
        "key": key,
        "headers": [_header(text) for text in header] if header else None,
        "id": envelope_id,
        "expires": None if expires is None else parse_expires(expires),
        "max_attempts": max_attempts,
        "content_type": content_type,
    }


def _check_alone(body: str | None, file: Path | None, fields: EnvelopeFields) -> None:
    """Raise `EnvelopeError` unless --jsonl stands with - and without what only a line may say."""
    if body != FROM_STDIN or file is not None:
        raise EnvelopeError("--jsonl: expected - as BODY, for standard input, and no --file")
    if given := [name for name, value in fields.items() if value is not None]:
        raise EnvelopeError(f"--jsonl: expected each line to say its own {', '.join(given)}")


def _body(body: str | None, file: Path | None) -> bytes:
    if (body is None) == (file is None):
        got = "neither" if body is None else "both"
        raise EnvelopeError(f"body: expected exactly one of BODY and --file; got {got}")
    if file is not None:
        return file.read_bytes()
    if body != FROM_STDIN:
        return os.fsencode(str(body))
    with opened_stdin() as stream:
        return stream.read()


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise EnvelopeError(f"--header: expected NAME=VALUE; got {text!r}")
    return name, value
