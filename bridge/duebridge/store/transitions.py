"""The transitions of a claimed envelope, as values that the store carries out."""

from typing import NamedTuple, TypeAlias

from duebridge.ports.publisher import Reason


class Ack(NamedTuple):
    """The broker confirmed it."""

    id: str


class Release(NamedTuple):
    """It never reached the broker's client."""

    id: str


class Retry(NamedTuple):
    """An envelope to put back: after `delay_ms`; whether it failed for certain, or may be out."""

    id: str
    delay_ms: int
    is_failure: bool
    is_unsure: bool
    error: str


class Burial(NamedTuple):
    """An envelope to end: why; whether it failed for certain, or may be out."""

    id: str
    reason: Reason
    is_failure: bool
    is_unsure: bool
    error: str


class Remembered(NamedTuple):
    """What an ack brings back for an id that is to be remembered; `place` is its place in ids."""

    place: int
    remember_ms: int
    content_hash: bytes


Decision: TypeAlias = Ack | Release | Retry | Burial
