"""What a client logs in with: SASL user and password, or OAUTHBEARER tokens of a user's function.

The password is read again at each connect, so that a secret's file may change; tokens are cached.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any, NamedTuple

from duebridge.errors import ConfigError

LOGIN = "duebridge.login"  # where a client's configuration has the `Login`
PROVIDER = "sasl.oauthbearer.token.provider"
REUSED_SHARE = 0.8  # of a token's lifetime

Token = tuple[str, float]  # token, expiry in seconds since the epoch


class Credentials(NamedTuple):
    """A user and a password; never shown."""

    user: str
    password: str

    def __repr__(self) -> str:
        """Show no secret."""
        return "Credentials(***)"


class Login:
    """Reads user and password of a broker's settings; `None` where they have none."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = settings
        self._last: Credentials | None = None

    def current(self) -> Credentials | None:
        """Return them as they are now; the last ones while a file is being replaced."""
        with suppress(ConfigError):
            self._last = _credentials_in(self._settings)
        return self._last


def _credentials_in(settings: Mapping[str, object]) -> Credentials | None:
    options = settings.get("options")
    if not isinstance(options, Mapping) or "sasl.password" not in options:
        return None
    return Credentials(str(options.get("sasl.username", "")), str(options["sasl.password"]))


class TokenFailed(Exception):
    """The token function failed; its message is omitted because it may contain a secret."""


class TokenSource:
    """Calls a function for a token and reuses the token for `REUSED_SHARE` of its lifetime.

    The function takes no argument and returns `(token, expires_at_s)`, as confluent-kafka's
    `oauth_cb` does. One thread at a time calls it; other connecting threads wait.
    """

    def __init__(self, name: str) -> None:
        """Import `module:function`; raises `ConfigError`."""
        self._name = name
        self._provider = _function(name)
        self._lock = threading.Lock()
        self._token: Token = ("", 0.0)
        self._reuse_until = 0.0

    def current(self) -> Token:
        """Return a valid token. Raises `TokenFailed`."""
        with self._lock:
            now = time.time()
            if now >= self._reuse_until:
                self._token = self._request(now)
                self._reuse_until = now + (self._token[1] - now) * REUSED_SHARE
            return self._token

    def _request(self, now: float) -> Token:
        try:
            token, until = self._provider()
            expires_at_s = float(until)
        except Exception as error:
            raise TokenFailed(f"{PROVIDER}: {self._name}: {type(error).__name__}") from None
        if not isinstance(token, str) or not token or not expires_at_s > now:
            expected = "expected (token, expires_at_s), not expired"
            raise TokenFailed(f"{PROVIDER}: {self._name}: {expected}; got another")
        return token, expires_at_s


def _function(name: str) -> Callable[[], Any]:
    if name.count(":") != 1:
        raise ConfigError(f"options.{PROVIDER}: expected module:function; got {name!r}")
    try:
        found = resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"options.{PROVIDER}: {name}: cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigError(f"options.{PROVIDER}: expected a function; got {name}, which is none")
    function: Callable[[], Any] = found
    return function
