"""The errors that duebridge raises; the class tells the caller how to react.

BridgeError
├── ConfigError          fix the configuration; nothing was started
│   ├── ConfigFileError  as its lines say, each of which begins with the place in the file
│   └── UnknownRoute     name a route that exists
├── EnvelopeError        fix the envelope; it was not stored
├── JobFailed            a pipeline job failed part-way; run it again
└── StoreError
    ├── StoreUnavailable try again later; whether the last call took effect is unknown
    │   └── Indeterminate it did, but a failover may lose it; make the same call again
    ├── StoreFull        free memory in the store, then make the same call with its `ids`
    ├── StoreUnfit       fix the store's settings; nothing was started
    └── RecordDamaged    this one envelope cannot be read; bury it
        └── RecordTooNew a newer duebridge wrote it; leave it to a newer worker
"""

import traceback
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Self


class BridgeError(Exception):
    """The base class of all errors that duebridge raises."""


class ConfigError(BridgeError):
    """The configuration is invalid; the message has a line for each mistake that was found."""


class ConfigFileError(ConfigError):
    """A configuration file is invalid: a line for each mistake, which begins with its place."""


class UnknownRoute(ConfigError):
    """A route is named that neither the configuration nor the store has."""


class EnvelopeError(BridgeError):
    """An envelope is invalid; the message states the expected and the actual value."""


class JobFailed(BridgeError):
    """A pipeline job failed part-way; running it again completes the rest."""


class StoreError(BridgeError):
    """A call of the delay store failed.

    `ids` are the envelopes without an answer, so that the same call can be made again with them,
    which is harmless; empty where the call was about none. `receipts` are those of the envelopes
    that were answered before it failed. What was read of the given ones is in one of the two.
    """

    _lacking: ClassVar[str] = ""  # what the message says of the ids, if anything

    def __init__(
        self, message: str = "", ids: Sequence[str] = (), receipts: Sequence[Any] = ()
    ) -> None:
        self._message = message
        self.ids = tuple(ids)
        self.receipts = tuple(receipts)
        of_ids = f"; {self._lacking} {_counted(ids)}" if ids and self._lacking else ""
        super().__init__(message + of_ids)

    def about(self, ids: Sequence[str], receipts: Sequence[Any] = ()) -> Self:
        """Return this error with the ids of these envelopes, and the receipts of others."""
        return type(self)(self._message, ids, receipts=receipts)


class StoreUnavailable(StoreError):
    """The delay store did not answer in time; a write of `ids` may or may not have happened."""

    _lacking = "no answer for"


class Indeterminate(StoreUnavailable):
    """The delay store wrote, but fewer replicas than `durability` names confirmed it in time.

    A failover may lose the write. The same call can be made again with `ids`, which is harmless,
    and returns once they confirm, with the answer of a further call: if the first was done,
    `duplicate` of a schedule, `unknown` of a cancel, as of an envelope that was delivered.
    `reply` is the unconfirmed answer of the store, as it came, unless `ids` are named.
    """

    _lacking = "not confirmed:"

    def __init__(
        self,
        message: str = "",
        ids: Sequence[str] = (),
        reply: Any = None,
        receipts: Sequence[Any] = (),
    ) -> None:
        super().__init__(message, ids, receipts)
        self.reply = reply


class StoreFull(StoreError):
    """The delay store is out of memory: it refused `ids`, or a call about none.

    Of several calls, or of one that was sent again, an earlier one may have stored some of them;
    the same call with `ids` is harmless.
    """

    _lacking = "no room for"


class StoreUnfit(StoreError):
    """The server is unfit to hold envelopes: wrong version, eviction policy or persistence."""


class OtherLife(StoreError):
    """The route was removed, or recreated, since the client opened it; the call changed nothing."""


class RenewalNeeded(StoreError):
    """The server may have lost writes, and its counters wait for `renew`; nothing was changed."""


class RecordDamaged(StoreError):
    """A stored record has a known layout but is corrupt."""


class RecordTooNew(RecordDamaged):
    """A stored record has a layout that requires a newer duebridge."""


def with_done(error: StoreError, done: str) -> StoreError:
    """Return an error of the same class whose message says what was done before it."""
    return type(error)(f"{error}; {before_that(done)}")


def before_that(done: str) -> str:
    """Return what was done before work for many was cut short; an empty text is nothing."""
    return f"before that: {done or 'nothing'}"


def listed_counts(counts: Mapping[str, int]) -> str:
    """Return how many answers there were of each status; an empty text for none."""
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def _counted(ids: Sequence[str]) -> str:
    """Return the number of ids and the first few, for a message."""
    if len(ids) == 1:
        return f"id {shown(ids[0])}"
    more = ", ..." if len(ids) > FEW else ""
    return f"{len(ids)} ids: {', '.join(map(shown, ids[:FEW]))}{more}"


FEW = 3
MOST_SHOWN = 200  # characters
MOST_COMPARED = 255  # characters: a name of no route or file is longer


def shown(value: object) -> str:
    """Return a short representation of a value for a message; never raises.

    `repr` itself fails for some values, such as integers of thousands of digits.
    """
    try:
        text = repr(value)
    except Exception:
        return f"a value of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def described(error: BaseException | None) -> str:
    """Return the class and the message of an error: `ValueError: no digits`."""
    return f"{type(error).__name__}: {error}"


def on_one_line(error: str) -> str:
    """Return a stored error, whose class and message are lines of their own, as one line."""
    return error.replace("\n", ": ", 1)


def place_of(error: BaseException) -> str:
    """Return `FILE:LINE` of what raised an error: of a defect, whose message could quote a secret.

    `error` has been raised.
    """
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(place.filename).name}:{place.lineno}"


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return `, did you mean WORD?`, or an empty text if no known word is close."""
    close = get_close_matches(given, list(known), n=1) if len(given) <= MOST_COMPARED else []
    return f", did you mean {close[0]}?" if close else ""


def unknown_name(expected: str, given: str, known: Iterable[str]) -> str:
    """Return the error text for an unknown name, with the known names and the closest one."""
    names = sorted(known)
    said = ", ".join(names) or "none"
    return f"expected {expected} ({said}); got {given!r}{did_you_mean(given, names)}"


def unlisted_name(given: str, known: Iterable[str]) -> str:
    """Return the error text for a name that is none of a few, with these and the closest one."""
    names = list(known)
    said = ", ".join(names) or "none"
    return f"expected one of {said}; got {shown(given)}{did_you_mean(given, names)}"
