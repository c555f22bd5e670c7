"""The decisions about a claimed envelope, as values that the store carries out."""

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from duebridge.envelope import Envelope
from duebridge.ports.publisher import Reason


class Ack(NamedTuple):
    """The broker confirmed the envelope; `token` is its lease's, the rest is what to remember."""

    id: str
    token: bytes
    remember_ms: int = 0
    content_hash: bytes = b""


class Release(NamedTuple):
    """The envelope never reached the broker's client."""

    id: str


HoldClock: TypeAlias = Literal["start", "end", "keep"]
"""What becomes of the clock of `hold`, which runs from the first target failure of a streak."""


ReaddressMode: TypeAlias = Literal["changed", "asked", "unaddressed"]
"""Which dead envelopes are made due for a dead-letter target: lua/readdress.lua."""


ScheduleMode: TypeAlias = Literal["refuse", "hold", "once", "reopen", "replace", "replace_living"]
"""What a schedule call does where an id is known: `DelayStore.schedule`, lua/schedule.lua."""


CLOCK_WORDS: dict[HoldClock, str] = {"start": "1", "end": "0", "keep": ""}
ERROR_BYTES = 1024


def stored_error(text: str) -> bytes:
    """Return an error as it is stored; a NUL would end it in a flight."""
    return text.replace("\0", " ").encode(errors="replace")[:ERROR_BYTES]


class Retry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Put an envelope back for `delay_ms`.

    `is_failure` counts a definite failure; `is_unsure` says that it may have been published.
    `error` is the class and the message, separated by a line break.
    """

    id: str
    delay_ms: int
    is_failure: bool
    is_unsure: bool
    error: str
    clock: HoldClock = "end"


NO_TAG = "-" * 8


class SetAside(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Put an envelope back for at most `delay_ms`, since its target is held or has no room.

    `tag` is a held target's: `DelayStore.resume` brings it back early. `error` is empty if nothing
    was published.
    """

    id: str
    delay_ms: int
    tag: str
    clock: HoldClock = "keep"
    is_unsure: bool = False
    error: str = ""


class Burial(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """End an envelope for a reason; the other fields are as in `Retry`."""

    id: str
    reason: Reason
    is_failure: bool
    is_unsure: bool
    error: str


class KeptMessage(NamedTuple):
    """A refused message that is dead from the start; `error` is as in `Retry`."""

    envelope: Envelope
    reason: Reason
    error: str


class Postponement(NamedTuple):
    """A dead letter that was not confirmed: the next shunt, or None if its target rejects it.

    `error` is empty if it was not tried.
    """

    id: str
    delay_ms: int | None
    error: str = ""


Decision: TypeAlias = Ack | Release | Retry | SetAside | Burial
