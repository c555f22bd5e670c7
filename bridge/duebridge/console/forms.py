"""Parses submitted forms; every error says `name: expected X; got Y`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qsl

from starlette.requests import Request

from duebridge.config.models import Config
from duebridge.durations import parse_duration_ms
from duebridge.errors import EnvelopeError, shown
from duebridge.http.bodies import read_body
from duebridge.instants import parse_at

MOST_BYTES = 1024 * 1024
MOST_FIELDS = 1000


class Form(dict[str, str]):
    """The fields of a form by name, of repeated ones the last; `ids` are all fields named id."""

    ids: tuple[str, ...] = ()


async def read_form(request: Request, config: Config) -> Form:
    """Parse a submitted form; raises `EnvelopeError` for one that no page of ours sends.

    Raises `ProblemError` for one that is too large or too slow: anybody may send one to the log-in.
    """
    body = await read_body(request, MOST_BYTES, config.serve.request_timeout / 1000)
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
        )
    except ValueError as error:  # of bytes that are no UTF-8, too
        raise EnvelopeError(f"form: expected fields of UTF-8 text; got {error}") from None
    form = Form(pairs)
    form.ids = tuple(dict.fromkeys(value for name, value in pairs if name == "id"))
    return form


def text_of(form: Mapping[str, object], name: str) -> str:
    """Return a field without the blanks around it, "" if it is absent."""
    value = form.get(name, "")
    return value.strip() if isinstance(value, str) else ""


def instant_ms(form: Mapping[str, object], name: str) -> int | None:
    """Return a field's instant, which is in UTC unless it says otherwise; None if it is empty.

    Raises `EnvelopeError`.
    """
    if not (text := text_of(form, name)):
        return None
    try:
        at = datetime.fromisoformat(text.upper())
    except ValueError:
        expected = "an instant such as 2026-01-31T09:00:00"
        raise EnvelopeError(f"{name}: expected {expected}; got {shown(text)}") from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def due_at(form: Mapping[str, object], name: str) -> datetime | None:
    """Return a field's instant as `parse_at` reads it, never early; in UTC as in `instant_ms`.

    None if it is empty. Raises `EnvelopeError`.
    """
    text = text_of(form, name)
    return parse_at(text, name, zone=UTC) if text else None


def duration_ms(form: Mapping[str, object], name: str) -> int:
    """Return a field's duration, 0 if it is empty; raises `EnvelopeError`."""
    text = text_of(form, name)
    return parse_duration_ms(text, name) if text else 0


def choice(form: Mapping[str, object], name: str, among: tuple[str, ...]) -> str:
    """Return a field that is one of these, the first if it is empty; raises `EnvelopeError`."""
    text = text_of(form, name) or among[0]
    if text not in among:
        words = ", ".join(filter(None, among))
        raise EnvelopeError(f"{name}: expected one of {words}; got {shown(text)}")
    return text
