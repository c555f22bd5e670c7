"""One envelope: its time line, its content, and what may be done with it."""

from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import Response

from duebridge.admin.timeline import Timeline, timeline
from duebridge.config.models import Route
from duebridge.console.forms import due_at, text_of
from duebridge.console.previews import Preview, preview
from duebridge.console.visit import Visit
from duebridge.errors import ConfigError, EnvelopeError
from duebridge.receipt import EnvelopeDetails, Known

MOST_HEADERS = 200
EVENTS = 100  # a page of the time line
TONES = {
    "delivered": "ok",
    "retried": "warn",
    "dead": "bad",
    "expired": "bad",
    "shunted": "bad",
    "cancelled": "warn",
    "dropped": "bad",
    "gap": "warn",
}


class EnvelopeSheet(NamedTuple):
    """The data of the page; `shown` is None if the store lacks the envelope.

    `known` is what the store or else the cold tier has, and `cold_error` why the latter cannot say.
    """

    shown: EnvelopeDetails | None
    known: Known | None
    cold_error: str
    line: Timeline
    body: Preview
    route: Route | None
    now_ms: int
    target: str


async def page(visit: Visit) -> Response:
    """Return the page; an envelope that is no more has its time line, or status 404."""
    route, name = _named(visit, visit.query)
    found = await visit.run(lambda: _gather(visit, route, name))
    return visit.page(
        "envelope.html",
        "search",
        _status(found),
        found=found,
        route=route,
        id=name,
        tones=TONES,
        most_headers=MOST_HEADERS,
        cursor=visit.query.get("cursor", ""),
    )


def _status(found: EnvelopeSheet) -> int:
    if found.known or found.line.events:
        return 200
    return 503 if found.cold_error else 404


async def deliver_now(visit: Visit) -> Response:
    """Make an envelope due now."""
    route, name = _to_change(visit)
    (answer,) = await visit.run(lambda: visit.site.operator.deliver_now(route, [name]))
    did = "delivering" if answer.status == "rescheduled" else answer.status
    return visit.go("envelope", route=route, id=name, did=did)


async def cancel(visit: Visit) -> Response:
    """Cancel an envelope."""
    route, name = _to_change(visit)
    (answer,) = await visit.run(lambda: visit.site.operator.cancel(route, [name]))
    did = "cancelled_in_flight" if answer.status == "in_flight" else answer.status
    return visit.go("envelope", route=route, id=name, did=did)


async def reschedule(visit: Visit) -> Response:
    """Give an envelope another due instant: after a delay, or at an instant in UTC."""
    route, name = _to_change(visit)
    delay, at = text_of(visit.form, "delay"), due_at(visit.form, "at")
    (answer,) = await visit.run(
        lambda: visit.site.operator.reschedule(route, [name], delay=delay or None, at=at)
    )
    return visit.go("envelope", route=route, id=name, did=answer.status)


def _named(visit: Visit, given: Mapping[str, str]) -> tuple[str, str]:
    if not (name := given.get("id", "")):
        raise EnvelopeError("id: expected an envelope's id; got ''")
    return visit.readable(given.get("route", "")), name


def _to_change(visit: Visit) -> tuple[str, str]:
    route, name = _named(visit, visit.form)
    return visit.operable(route), name


def _gather(visit: Visit, route: str, name: str) -> EnvelopeSheet:
    operator = visit.site.operator
    shown = operator.show(route, name)
    cold, cold_error = (None, "") if shown else _cold(visit, route, name)
    line = timeline(operator, route, name, visit.query.get("cursor", ""), limit=EVENTS)
    named = visit.site.config.routes.get(route)
    own = shown.target if shown and shown.target else named.target if named else None
    return EnvelopeSheet(
        shown,
        shown or cold,
        cold_error,
        line,
        preview(shown.body if shown else None),
        named,
        operator.now_ms(route),
        "" if own is None else str(own),
    )


def _cold(visit: Visit, route: str, name: str) -> tuple[Known | None, str]:
    try:
        return visit.site.cold(route, name), ""
    except ConfigError as error:
        return None, str(error)
