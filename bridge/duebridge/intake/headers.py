"""Splits an arrival's headers: control headers, and those that stay on the message."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from duebridge.envelope import SHORT_BYTES, Headers, HeaderValue
from duebridge.errors import shown
from duebridge.headers import RESERVED, RESERVED_PREFIX
from duebridge.intake.refused import MessageRefused
from duebridge.intake.values import is_sound

DELAY, DELIVER_AT, RETRY_AFTER = "x-delay", "x-deliver-at", "x-retry-after"
EPOCH, TOPIC, KEY = "scheduler-epoch", "scheduler-target-topic", "scheduler-target-key"
ROUTE, CANCEL = "x-route", "x-cancel"
MESSAGE_ID, ATTEMPT, DUE_AT = "x-message-id", "x-attempt", "x-due-at"
ROUND, ORIGIN, ORIGIN_TIMESTAMP = "x-round", "x-origin", "x-origin-timestamp"

TIMES = (DELAY, DELIVER_AT, RETRY_AFTER, EPOCH)
ROUNDS = frozenset({ROUND, ORIGIN, ORIGIN_TIMESTAMP})
_READ = frozenset({*TIMES, TOPIC, KEY, ROUTE, CANCEL, *ROUNDS})
_STRIPPED = RESERVED | {"x-death"}
_UNSOUND = "?"


class IntakeHeaders(NamedTuple):
    """The headers of an arrival: what remains, the controls by name, and when it is due.

    Of a repeated control the last one counts, as Kafka's clients read headers; `times` has all.
    """

    remaining: Headers
    controls: dict[str, HeaderValue]
    times: Sequence[tuple[str, HeaderValue]]


def read_headers(headers: Headers, *, is_retry: bool) -> IntakeHeaders:
    """Return the headers of an arrival; raises `MessageRefused` for one that cannot remain."""
    remaining: list[tuple[str, HeaderValue]] = []
    controls: dict[str, HeaderValue] = {}
    times: list[tuple[str, HeaderValue]] = []
    for header in headers:
        name, value = header
        kind = _kind(name)
        if not kind or (kind in ROUNDS and not is_retry):
            if type(value) is not bytes and not is_sound(value):
                raise MessageRefused(
                    f"header {shown(name)}: expected a value of AMQP; got {shown(value)}"
                )
            remaining.append(header)
        elif kind == _UNSOUND:
            raise MessageRefused(
                f"header name: expected up to 255 printable bytes; got {shown(name)}"
            )
        else:
            controls[kind] = value
            if kind in TIMES:
                times.append((kind, value))
    return IntakeHeaders(tuple(remaining), controls, times)


@lru_cache(maxsize=4096)  # the names recur
def _kind(name: str) -> str:
    """Return the name of a control header, empty for one that stays."""
    lower = name.lower()
    if lower in _READ or lower in _STRIPPED or lower.startswith(RESERVED_PREFIX):
        return lower
    is_whole = name.isprintable() and 0 < len(name.encode(errors="replace")) <= SHORT_BYTES
    return "" if is_whole else _UNSOUND
