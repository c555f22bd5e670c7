"""Authenticates, authorizes and rate-limits requests: 401, 403 and 429."""

import time
from collections.abc import Callable

from starlette.requests import Request

from duebridge.config.serve import is_loopback
from duebridge.http.problems import ProblemError
from duebridge.http.tokens import Scope, Token, TokenFile

BEARER = "bearer "
BURST_S = 1.0  # of a rate, that a quiet token may use at once


def token_of(request: Request, tokens: TokenFile) -> Token:
    """Return the token of a request's `Authorization: Bearer`; raises `ProblemError` 401."""
    if tokens.is_open:
        _check_local(request)
    given = request.headers.get("authorization", "")
    secret = given[len(BEARER) :].strip() if given[: len(BEARER)].lower() == BEARER else ""
    token = tokens.find(secret)
    if token is None:
        ask = {"WWW-Authenticate": 'Bearer realm="duebridge"'}
        got = "another" if secret else "none"
        detail = f"Authorization: expected Bearer and a known token; got {got}"
        raise ProblemError(401, "A token is needed", detail, ask)
    return token


def check_may(token: Token, scope: Scope, route: str | None) -> None:
    """Raise `ProblemError` 403 unless the token has the scope, and the route where one is named."""
    if token.may(scope, route):
        return
    if not token.may(scope):
        scopes = ", ".join(token.scopes)
        detail = f"scope: expected {scope}; got {scopes} of token {token.name}"
        raise ProblemError(403, "The token may not do this", detail)
    detail = f"route: expected one of token {token.name}; got {route!r}"
    raise ProblemError(403, "The token may not do this", detail)


def _check_local(request: Request) -> None:
    """Refuse what a web page elsewhere sends through the browser of somebody on this machine."""
    host = request.url.hostname or ""
    origin = request.headers.get("origin")
    if not is_loopback(host) or origin not in (
        None,
        f"{request.url.scheme}://{request.url.netloc}",
    ):
        detail = "Host, Origin: without serve.tokens expected this machine itself"
        raise ProblemError(403, "Not from this machine", detail)


class Rates:
    """The rate limits of the tokens: a bucket each, of this process alone."""

    def __init__(
        self, per_second: int | None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._monotonic = monotonic
        self._full_at: dict[str, float] = {}

    def wait_s(self, token: Token, count: int = 1) -> float:
        """Take `count`, and return how long to wait before using them; 0 within the rate."""
        if self._per_second is None:
            return 0.0
        now = self._monotonic()
        full_at = max(self._full_at.get(token.name, now), now) + count / self._per_second
        self._full_at[token.name] = full_at
        return max(0.0, full_at - now - BURST_S)

    def check(self, token: Token) -> None:
        """Take one; raises `ProblemError` 429 if the bucket is empty, which takes nothing."""
        before = self._full_at.get(token.name)
        if (wait_s := self.wait_s(token)) > 0:
            self._full_at[token.name] = before or 0.0
            again = {"Retry-After": str(max(1, round(wait_s)))}
            detail = f"rate: expected at most {self._per_second} a second of token {token.name}"
            raise ProblemError(429, "Too many requests", detail, again)
