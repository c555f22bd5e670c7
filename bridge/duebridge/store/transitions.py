"""The decisions about a claimed envelope, as values that the store carries out."""

from typing import NamedTuple, TypeAlias

import msgspec

from duebridge.ports.publisher import Reason


class Ack(NamedTuple):
    """The broker confirmed the envelope."""

    id: str


class Release(NamedTuple):
    """The envelope never reached the broker's client."""

    id: str


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


class Burial(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """End an envelope for a reason; the other fields are as in `Retry`."""

    id: str
    reason: Reason
    is_failure: bool
    is_unsure: bool
    error: str


class RememberedId(NamedTuple):
    """What an ack hands back for an id to remember; `place` is its index among the acked ids."""

    place: int
    remember_ms: int
    content_hash: bytes


Decision: TypeAlias = Ack | Release | Retry | Burial
