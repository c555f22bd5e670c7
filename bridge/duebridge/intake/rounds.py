"""Retries of consumers: each round of a failed message, instead of a ladder of topics."""

import re
from typing import NamedTuple
from zlib import crc32

from duebridge.config.models import RetryPolicy
from duebridge.envelope import Headers, HeaderValue, Instant
from duebridge.intake import values
from duebridge.intake.headers import MESSAGE_ID, ORIGIN, ORIGIN_TIMESTAMP, ROUND, IntakeHeaders
from duebridge.intake.ids import sound_id, stored_id
from duebridge.intake.refused import MessageRefused
from duebridge.ports.publisher import Reason
from duebridge.ports.source import Arrival
from duebridge.worker.backoff import retry_delay_ms

_ROUND_OF_ID = re.compile(r"/[0-9]+$")
MOST_ROUNDS = 2**31


class Round(NamedTuple):
    """One round of a failed message, and the headers that count it."""

    number: int
    headers: Headers


def round_id(arrival: Arrival, reading: IntakeHeaders) -> str:
    """Return the id of the round that an arrival begins; raises `MessageRefused`."""
    return sound_id(f"{_base(arrival, reading)}/{_number(reading)}")


def next_round(arrival: Arrival, reading: IntakeHeaders, policy: RetryPolicy) -> Round:
    """Return the round that an arrival begins; raises `MessageRefused` when there is no more."""
    number = _number(reading)
    if not arrival.origin:
        text = "x-origin: expected the topic or queue that the message goes back to; got none"
        raise MessageRefused(text, Reason.UNROUTABLE)
    if number >= policy.max_attempts:
        text = (
            f"the consumer failed {number} times, of max_attempts {policy.max_attempts}"
            f" (x-round {number - 1})"
        )
        raise MessageRefused(text, Reason.ATTEMPTS_EXHAUSTED)
    return Round(number, _counted(arrival, reading, number))


def back_off(policy: RetryPolicy, number: int, id: str) -> Instant:  # noqa: A002
    """Return the delay of the round of an id; its jitter is the same at each redelivery."""
    drawn = crc32(id.encode()) / 2**32
    return Instant(retry_delay_ms(policy, number - 1, lambda: drawn), relative=True)


def _number(reading: IntakeHeaders) -> int:
    if ROUND not in reading.controls:
        return 1
    before = values.whole(ROUND, reading.controls[ROUND])
    if not 0 <= before < MOST_ROUNDS:
        raise MessageRefused(f"{ROUND}: expected 0 or more; got {before}")
    return before + 1


def _base(arrival: Arrival, reading: IntakeHeaders) -> str:
    """Return the id of the first delivery, which all rounds begin with."""
    given = values.text(MESSAGE_ID, reading.controls.get(MESSAGE_ID))
    if not given:
        return stored_id(arrival, replace=False)
    return _ROUND_OF_ID.sub("", given) if ROUND in reading.controls else given


def _counted(arrival: Arrival, reading: IntakeHeaders, number: int) -> Headers:
    since: HeaderValue = reading.controls.get(ORIGIN_TIMESTAMP)
    if since is None and arrival.sent_at_ms:
        since = str(arrival.sent_at_ms)
    headers: Headers = ((ROUND, str(number)), (ORIGIN, arrival.origin))
    return headers if since is None else (*headers, (ORIGIN_TIMESTAMP, since))
