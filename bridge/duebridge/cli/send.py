"""`duebridge send`: one envelope from the command line, or many from standard input."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from duebridge.cli.envelopes import AtOption, DelayOption, RouteArgument
from duebridge.cli.exits import finish
from duebridge.cli.instants import parse_expires
from duebridge.cli.lines import FROM_STDIN, opened_stdin
from duebridge.cli.output import Output, OutputOption
from duebridge.cli.receipts import is_stored, show_receipt
from duebridge.cli.rejects import opened_rejects
from duebridge.cli.session import ConfigOption, load, opened_producer
from duebridge.cli.stream import LineSender
from duebridge.envelope import EnvelopeFields
from duebridge.errors import EnvelopeError
from duebridge.producer import find_route


class Conflict(StrEnum):
    """What happens where the id lives with other content."""

    REFUSE = "refuse"
    REPLACE = "replace"


def send(
    context: typer.Context,
    route: RouteArgument,
    body: Annotated[
        str | None, typer.Argument(help="The body as text; - is standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Take the body from this file.")] = None,
    delay: DelayOption = None,
    at: AtOption = None,
    key: Annotated[
        bytes | None,
        typer.Option(help="The message key; Kafka only.", parser=os.fsencode, metavar="<text>"),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="May be repeated.", metavar="NAME=VALUE")
    ] = None,
    envelope_id: Annotated[
        str | None, typer.Option("--id", help="The id; else a random one. The same is sent once.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="Not delivered later than: a time from now, or as --at.")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option(help="Attempts before it is dead; else the route's.")
    ] = None,
    content_type: Annotated[str | None, typer.Option(help="Such as application/json.")] = None,
    on_conflict: Annotated[
        Conflict, typer.Option(help="What to do where the id lives with other content.")
    ] = Conflict.REFUSE,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="With -: an envelope a line, as JSON.")
    ] = False,
    rejects: Annotated[
        Path | None,
        typer.Option(help="With --jsonl: write refused lines here, the reason above each."),
    ] = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Schedule an envelope, or a stream of them.

    It takes a body, and exactly one of --delay and --at. Exits 0 for accepted, duplicate and
    replaced, 1 for conflict, in_flight or any refused line. A line of --jsonl has the fields of
    the Python API: body (text, or {"base64": "AAE="}), delay or at, id, key, headers and so on.
    Units are 500ms, 2.5s, 15m, 2h, 3d; instants are RFC 3339 with an offset, or epoch
    milliseconds. A refused line is named, and no other is lost: what --rejects wrote can be mended
    and sent in the same way, since lines that begin with # are remarks. Ctrl-C says which lines are
    stored; sent again, lines with an id of their own are duplicates.
    """
    fields: EnvelopeFields = {
        "delay": delay,
        "at": at,
        "key": key,
        "headers": [_header(each) for each in header] if header else None,
        "id": envelope_id,
        "expires": None if expires is None else parse_expires(expires),
        "max_attempts": max_attempts,
        "content_type": content_type,
    }
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
    with opened_producer(settings) as producer:
        receipt = producer.schedule(route, content, on_conflict=on_conflict.value, **fields)
    show_receipt(receipt, output)
    finish(is_yes=is_stored(receipt))


def _check_alone(body: str | None, file: Path | None, fields: EnvelopeFields) -> None:
    """Raise `EnvelopeError` where --jsonl has not - beside it, or what only a line may say."""
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
