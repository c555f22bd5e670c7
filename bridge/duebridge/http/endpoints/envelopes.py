"""Envelopes: schedule one or many, look one up, give it another due instant, cancel it."""

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from duebridge.envelope import JSON, Envelope, checked_id, due_instant
from duebridge.errors import ConfigError, EnvelopeError, StoreUnavailable
from duebridge.http.batcher import BatchKey
from duebridge.http.bodies import (
    MERGE_PATCH,
    MOVE_BYTES,
    check_media_type,
    media_type,
    most_bytes,
    read_body,
)
from duebridge.http.endpoints import cloud_events, keys
from duebridge.http.endpoints.lines import LINES, Lines
from duebridge.http.operations import AuthorizedCall, answer, query_choice
from duebridge.http.problems import FULL_AGAIN_S, ProblemError
from duebridge.http.site import Site
from duebridge.instants import parse_at
from duebridge.jsonl import field_fault, parse_line
from duebridge.ports.discovery import broker_type
from duebridge.receipt import Known, Receipt
from duebridge.scheduling.route_scheduler import due_fault
from duebridge.store.wire.replies import RescheduleReply

POSTED = {"accepted": 201, "replaced": 201, "duplicate": 200, "refused": 422}  # the others: 409
CHANGED = {"cancelled": 200, "rescheduled": 200, "recorded": 202, "unknown": 404}  # the others: 409
_NOT_MOVED = {  # title and detail
    "in_flight": ("Not changed", "id: it is being delivered"),
    "dead": ("Not changed", "id: it is dead; replay or drop it"),
}
_STARTED = "id: a delivery was started, and is not known to have failed; no other will be tried"
_NOT_CANCELLED = {**_NOT_MOVED, "in_flight": ("Perhaps delivered", _STARTED)}
ON_CONFLICT = ("refuse", "replace")
NOW = "+0"


class Move(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another due instant: exactly one of `delay` and `at`."""

    delay: str | None = None
    at: str | int | None = None


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a change of an envelope; `due_at_ms` is its new due instant."""

    id: str
    route: str
    status: str
    due_at_ms: int | None = None


async def post(call: AuthorizedCall) -> Response:
    """Schedule one envelope, or one a line."""
    key = keys.key_of(call.request)
    replace = query_choice(call.request, "on_conflict", ON_CONFLICT) == "replace"
    if replace and key is not None:
        detail = f"{keys.HEADER}: expected on_conflict=refuse beside it; got replace"
        raise ProblemError(400, "Bad request", detail)
    if key is None:
        batch_key = BatchKey(call.token, call.route, "replace" if replace else "refuse")
    else:  # known for a day after its end, at least
        batch_key = BatchKey(call.token, call.route, "hold", keys.KEPT_MS)
    if media_type(call.request) in LINES and not cloud_events.is_binary(call.request):
        return Lines(call, batch_key, key)
    usual_id = None if key is None else keys.made_id(call.token, key, 1)
    envelope = await _read_envelope(call, usual_id)
    check = partial(call.check_again, "schedule")  # it may wait longer than its token lasts
    receipt = await call.batcher.schedule(batch_key, envelope, call.has_left, check)
    return _posted(call, envelope, receipt, is_made=envelope.id == usual_id)


async def _read_envelope(call: AuthorizedCall, usual_id: str | None) -> Envelope:
    request, config = call.request, call.site.config
    if cloud_events.is_binary(request):
        form = cloud_events.BINARY
    else:
        form = check_media_type(request, JSON, cloud_events.STRUCTURED, *LINES)
    body = await _read_body(call, most_bytes(config, call.route))
    if form == JSON:
        return _parsed(body, usual_id)
    target = config.routes[call.route].target
    kind = broker_type(config.brokers[target.broker].type)
    if form == cloud_events.BINARY:
        return cloud_events.of_binary(request.headers, body, kind)
    return cloud_events.of_structured(body, kind)


async def _read_body(call: AuthorizedCall, most: int) -> bytes:
    within_s = call.site.config.serve.request_timeout / 1000
    body = await read_body(call.request, most, within_s)
    call.check_again("schedule")  # a slow body may outlive its token
    return body


def _parsed(body: bytes, usual_id: str | None) -> Envelope:
    try:
        return parse_line(body, usual_id)
    except EnvelopeError as error:
        if is_unreadable(error):
            raise ProblemError(400, "Bad request", str(error)) from error
        raise


def is_unreadable(error: EnvelopeError) -> bool:
    """Whether it is about what is not JSON at all."""
    why = error.__cause__
    is_readable = why is None or isinstance(why, msgspec.ValidationError)
    return not is_readable and isinstance(why, msgspec.DecodeError | ValueError | RecursionError)


def _posted(
    call: AuthorizedCall, envelope: Envelope, receipt: Receipt, *, is_made: bool
) -> Response:
    headers = {}
    if is_made and receipt.status == "conflict":
        detail = f"{keys.HEADER}: expected the content of its first request; got other content"
        raise ProblemError(422, "The key is taken", detail, answer=receipt)
    if is_made and keys.is_replayed(receipt):
        headers[keys.REPLAYED] = "true"
        receipt = keys.as_at_first(receipt)
    status = POSTED.get(receipt.status, 409)
    if status == 201:
        headers["Location"] = f"/v1/routes/{call.route}/envelopes/{quote(receipt.id, safe='')}"
    if status < 300:
        return answer(receipt, status, headers)
    most = call.site.config.routes[call.route].max_body
    if len(envelope.body or b"") > most:
        raise ProblemError(413, "Too large", receipt.error)
    title = "The envelope is refused" if status == 422 else f"Not stored: {receipt.status}"
    raise ProblemError(status, title, receipt.error or _why_not(call, receipt), answer=receipt)


def _why_not(call: AuthorizedCall, receipt: Receipt) -> str:
    how = "on_conflict=replace" if keys.key_of(call.request) is None else _REPLACE_WITHOUT_KEY
    return {
        "conflict": f"id: it has, or had, other content; {how} replaces that",
        "in_flight": "id: it is being delivered, which is too late to replace it",
    }.get(receipt.status, f"id: it ended {receipt.status}; {how} schedules it again")


async def get(call: AuthorizedCall) -> Response:
    """Look an envelope up."""
    id_ = _id_of(call)
    node = call.site.node_of(call.route, id_)
    known = await call.site.run(lambda: _look(call.site, call.route, id_), node=node)
    if known is None:
        is_cold = call.site.config.routes[call.route].cold_tier is not None
        raise ProblemError(404, "Unknown envelope", _UNKNOWN + (_NOT_IN_FILES if is_cold else ""))
    return answer(known)


def _look(site: Site, name: str, id_: str) -> Known | None:
    entry = site.scheduler(name).store.of(id_).get(id_)
    if entry is not None:
        return Known.of(name, entry)
    try:
        return site.cold(name, id_)
    except ConfigError as error:  # its package or its files are missing here
        again = {"Retry-After": str(FULL_AGAIN_S)}
        raise ProblemError(503, "The cold tier cannot be read", str(error), again) from error


async def patch(call: AuthorizedCall) -> Response:
    """Give an envelope another due instant."""
    check_media_type(call.request, JSON, MERGE_PATCH)
    body = await _read_body(call, MOVE_BYTES)
    try:
        move = msgspec.json.decode(body, type=Move)
    except msgspec.ValidationError as error:
        fault = field_fault(body, error, Move.__struct_fields__)
        raise EnvelopeError(fault or f"expected an object with delay or at: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        detail = f"expected a JSON object with delay or at: {error}"
        raise ProblemError(400, "Bad request", detail) from error
    due = due_instant(move.delay, None if move.at is None else parse_at(move.at, "at"))
    return await _reschedule(call, str(due))


async def deliver_now(call: AuthorizedCall) -> Response:
    """Make an envelope due now."""
    return await _reschedule(call, NOW)


async def delete(call: AuthorizedCall) -> Response:
    """Cancel an envelope."""
    id_ = _id_of(call)
    call_id = keys.call_id(call.token, keys.key_of(call.request), "cancel", call.route, id_)

    def cancel() -> str:
        return call.site.scheduler(call.route).store.of(id_).cancel(id_, call=call_id)

    status = await _naming(call, id_, cancel)
    return _changed(Change(id_, call.route, status), _NOT_CANCELLED)


async def _reschedule(call: AuthorizedCall, due: str) -> Response:
    id_, key = _id_of(call), keys.key_of(call.request)
    route = call.site.config.routes[call.route]
    call_id = keys.call_id(call.token, key, "reschedule", call.route, id_, due)

    def reschedule() -> RescheduleReply:
        store = call.site.scheduler(call.route).store.of(id_)
        return store.reschedule(id_, due, route.max_delay, call_id)

    reply = await _naming(call, id_, reschedule)
    if reply.status in ("too_far", "expires_before_due"):
        raise EnvelopeError(due_fault(route, reply))
    due_at_ms = reply.due_at_ms if CHANGED.get(reply.status, 409) < 300 else None
    return _changed(Change(id_, call.route, reply.status, due_at_ms))


async def _naming(call: AuthorizedCall, id_: str, change: Any) -> Any:
    node = call.site.node_of(call.route, id_)
    try:
        return await call.site.run(change, call.token, call.has_left, node)
    except StoreUnavailable as error:
        raise error.about([id_]) from error


def _changed(change: Change, unchanged: Mapping[str, tuple[str, str]] = _NOT_MOVED) -> Response:
    status = CHANGED.get(change.status, 409)
    if status < 300:
        return answer(change, status)
    if status == 404:
        raise ProblemError(404, "Unknown envelope", _UNKNOWN, answer=change)
    title, detail = unchanged[change.status]
    raise ProblemError(409, f"{title}: {change.status}", detail, answer=change)


def _id_of(call: AuthorizedCall) -> str:
    return checked_id(call.request.path_params["id"])


_REPLACE_WITHOUT_KEY = f"on_conflict=replace, without {keys.HEADER},"
_UNKNOWN = "id: the store does not know it: delivered, cancelled, or never scheduled"
_NOT_IN_FILES = "; nor has the cold tier it, as this process sees its path"
