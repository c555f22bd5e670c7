"""Tokens of the HTTP interface: who may do what on which routes.

The file is a YAML list of name, SHA-256 of the secret, scopes and routes; a name may stand twice,
so that a secret can be replaced while the former one is still in use.
"""

import hmac
import re
import secrets
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Literal, TypeAlias, get_args

import msgspec
import structlog
import yaml

from duebridge.config.fields import checked_name
from duebridge.errors import ConfigError, shown

Scope: TypeAlias = Literal["schedule", "read", "operate"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

SECRET_BYTES = 32
MOST_NAME = 64  # characters: the journal keeps the name beside each entry
LOOK_EVERY_S = 1.0  # for a changed file
_SHA256 = re.compile("[0-9a-f]{64}")
_EXPECTED = "expected a YAML list of {name, sha256, scopes, routes}"

log = structlog.get_logger()


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A right to use the interface; `sha256` is of the secret, in hexadecimal digits."""

    name: str
    sha256: str
    scopes: tuple[str, ...]
    """Of `SCOPES`: `read_tokens` and `check_token` see to it."""
    routes: tuple[str, ...] = ("*",)
    """Names, which may be globs."""

    def may(self, scope: Scope, route: str | None = None) -> bool:
        """Whether the token has a scope, on a route if one is given; `operate` includes `read`."""
        has_scope = scope in self.scopes or (scope == "read" and "operate" in self.scopes)
        return has_scope and (route is None or self.covers(route))

    def covers(self, route: str) -> bool:
        """Whether the route is one of the token's."""
        return any(fnmatchcase(route, pattern) for pattern in self.routes)


LOCAL = Token("local", "", ("schedule", "read", "operate"))


def new_secret() -> str:
    """Return a new secret of 256 random bits."""
    return secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: str) -> str:
    """Return the digest of a secret, as the file keeps it."""
    return sha256(secret.encode()).hexdigest()


def read_tokens(text: str) -> tuple[Token, ...]:
    """Return the tokens of a file; raises `ConfigError`, which quotes names and scopes alone."""
    try:
        given = yaml.safe_load(text)
    except Exception:  # also a ValueError, of a date that is none, and whatever PyYAML runs into
        raise ConfigError(f"serve.tokens: {_EXPECTED}; got no YAML") from None
    try:
        tokens = msgspec.convert(given, tuple[Token, ...])
    except msgspec.ValidationError as error:
        raise ConfigError(f"serve.tokens: {_EXPECTED}: {error}") from None
    return tuple(map(_checked, tokens))


def check_token(given: object) -> Token:
    """Return one token of such a list; raises `ConfigError`."""
    try:
        return _checked(msgspec.convert(given, Token))
    except msgspec.ValidationError as error:
        raise ConfigError(f"token: {error}") from None


def _checked(token: Token) -> Token:
    checked_name("serve.tokens: name", token.name)
    place = f"serve.tokens: {token.name}"
    if len(token.name) > MOST_NAME:
        raise ConfigError(f"{place}: expected a name of at most {MOST_NAME} characters")
    if not _SHA256.fullmatch(token.sha256):
        raise ConfigError(f"{place}: sha256: expected 64 hexadecimal digits, as `duebridge token`")
    if token.sha256 == digest_of(""):
        raise ConfigError(f"{place}: sha256: expected that of a secret; got that of an empty text")
    if not token.scopes:
        raise ConfigError(f"{place}: scopes: expected at least one of {', '.join(SCOPES)}")
    for scope in token.scopes:
        if scope not in SCOPES:
            expected = f"expected {', '.join(SCOPES)}; got {shown(scope)}"
            raise ConfigError(f"{place}: scopes: {expected}")
    if not token.routes:
        raise ConfigError(f"{place}: routes: expected at least one name or glob; got none")
    return token


class TokenFile:
    """The tokens as their file has them now: a change counts after a second, at most.

    A new file that is broken is logged, and the former tokens stay. One without a token ends the
    right of all; at the start that is a mistake.
    """

    def __init__(
        self, read: Callable[[], str], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the tokens with `read`; raises `ConfigError`."""
        self._read = read
        self._monotonic = monotonic
        self._text = read()
        self._tokens = _with_digests(read_tokens(self._text))
        if not self._tokens:
            raise ConfigError("serve.tokens: expected at least one token; got an empty list")
        self._looked_at = monotonic()
        self._fault = ""  # of the file as it is now

    is_open = False
    """Whether everyone may do everything, without a token."""

    def find(self, secret: str) -> Token | None:
        """Return the token of a secret, of "" none; takes as long for others, known or not."""
        self._look()
        if not secret:
            return None
        digest = sha256(secret.encode(errors="surrogatepass")).digest()
        found = None
        for expected, token in self._tokens:
            if hmac.compare_digest(digest, expected):
                found = token
        return found

    def has(self, token: Token) -> bool:
        """Whether the file is as it was when `find` returned this token; digests nothing."""
        self._look()
        return any(token is each for _, each in self._tokens)

    def named(self, name: str) -> list[Token]:
        """Return the tokens of a name, as the file has them now."""
        self._look()
        return [token for _, token in self._tokens if token.name == name]

    def _look(self) -> None:
        if (now := self._monotonic()) < self._looked_at + LOOK_EVERY_S:
            return
        self._looked_at = now
        try:
            self._take(self._read())
            self._fault = ""
        except ConfigError as error:
            if str(error) != self._fault:
                log.error("tokens_refused", error=str(error))
            self._fault = str(error)

    def _take(self, text: str) -> None:
        if text == self._text:
            return
        self._tokens = _with_digests(read_tokens(text))
        self._text = text
        log.info("tokens_read", tokens=len(self._tokens))


class NoTokens(TokenFile):
    """Everyone may do everything: for a loopback address alone."""

    is_open = True

    def __init__(self) -> None:
        """Ask for no file."""

    def find(self, secret: str) -> Token | None:  # noqa: ARG002 - any secret will do
        """Return the token `local`."""
        return LOCAL

    def has(self, token: Token) -> bool:
        """Return whether it is the token `local`."""
        return token is LOCAL

    def named(self, name: str) -> list[Token]:
        """Return the token `local` by its name."""
        return [LOCAL] if name == LOCAL.name else []


def _with_digests(tokens: tuple[Token, ...]) -> list[tuple[bytes, Token]]:
    return [(bytes.fromhex(token.sha256), token) for token in tokens]
