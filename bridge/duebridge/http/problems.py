"""Answers that say no, as RFC 9457 has them, in the words of our errors."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from starlette.responses import Response

from duebridge.errors import (
    BridgeError,
    EnvelopeError,
    Indeterminate,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnfit,
    UnknownRoute,
    place_of,
)

PROBLEM = "application/problem+json"
AWAY_AGAIN_S, FULL_AGAIN_S = 2, 30  # of Retry-After: a failover is over in seconds
log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that was not done. `answer` is the receipt or the change that says why.

    `ids` are those of envelopes that may have been stored: make the same request again.
    """

    title: str
    status: int
    detail: str = ""
    answer: Any = None
    ids: tuple[str, ...] = ()


class ProblemError(Exception):
    """A request that is answered with a problem."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.headers = headers or {}
        self.more = more

    def response(self) -> Response:
        """Return the answer."""
        found = {"title": self.title, "status": self.status, "detail": self.detail, **self.more}
        answer = Response(_encode(found), self.status, media_type=PROBLEM)
        answer.headers.update(self.headers)
        return answer


def refusal_of(error: Exception) -> ProblemError:
    """Return the refusal that an error is; of a defect nothing is told but that it is one."""
    if isinstance(error, ProblemError):
        return error
    for kind, status, title, again_s in _TABLE:
        if isinstance(error, kind):
            again = {"Retry-After": str(again_s)} if again_s else {}
            ids = {"ids": error.ids} if isinstance(error, StoreUnavailable | StoreFull) else {}
            return ProblemError(status, title, str(error), again, **ids)
    detail = "a defect of duebridge, or of its configuration; see the server's log"
    return ProblemError(500, HTTPStatus(500).phrase, detail)


def log_defect(error: Exception) -> None:
    """Log where a defect is, without its message, which could quote an id or a body."""
    log.error("http_defect", error=type(error).__name__, where=place_of(error))


# The first that fits decides.
_TABLE: tuple[tuple[type[BridgeError], int, str, int], ...] = (
    (UnknownRoute, 404, "Unknown route", 0),
    (EnvelopeError, 422, "The envelope is refused", 0),
    (Indeterminate, 503, "The replicas did not confirm", AWAY_AGAIN_S),
    (StoreUnavailable, 503, "The delay store is away", AWAY_AGAIN_S),
    (StoreFull, 503, "The delay store is full", FULL_AGAIN_S),
    (StoreUnfit, 503, "The delay store is unfit", FULL_AGAIN_S),
    (StoreError, 500, "The delay store failed", 0),
)
