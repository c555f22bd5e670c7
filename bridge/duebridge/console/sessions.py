"""Sessions of the console: a signed cookie that names a token, and the proof that a form is ours.

The cookie holds a token's name, when it ends and random bits, signed with a key made of the
token's hash: every process that reads the same token file accepts it, and a token that leaves the
file takes its sessions along. Whoever reads the hashes could sign: the file is to be kept as a
secret is.
"""

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from duebridge.http.tokens import Token, TokenFile

COOKIE = "duebridge_session"
LASTS_S = 12 * 3600
MOST_COOKIE = 400  # characters
_FORM = re.compile(r"([A-Za-z0-9._-]{1,128})~([0-9]{1,12})~([A-Za-z0-9_-]{22})~([A-Za-z0-9_-]{43})")


class Session(NamedTuple):
    """A signed-on user. `proof` goes into each form, and comes back with each write."""

    token: Token
    cookie: str
    proof: str

    def proves(self, given: str) -> bool:
        """Whether a form was made for this session; in constant time."""
        return hmac.compare_digest(self.proof.encode(), given.encode(errors="replace"))


class Sessions:
    """Makes sessions and reads them back. Thread-safe."""

    def __init__(self, tokens: TokenFile, now_ms: Callable[[], int]) -> None:
        self._tokens = tokens
        self._now_ms = now_ms
        self._own_key = secrets.token_bytes(32)  # of the token `local`, whose hash is empty

    def begin(self, token: Token) -> Session:
        """Return a new session."""
        ends_at_s = self._now_ms() // 1000 + LASTS_S
        content = f"{token.name}~{ends_at_s}~{secrets.token_urlsafe(16)}"
        return self._session(token, f"{content}~{self._sign(token, 'session', content)}")

    def read(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if it is not ours, over, or of a former token."""
        match = _FORM.fullmatch(cookie[: MOST_COOKIE + 1])
        if match is None or int(match[2]) * 1000 <= self._now_ms():
            return None
        content, _, signature = cookie.rpartition("~")
        for token in self._tokens.named(match[1]):
            if hmac.compare_digest(self._sign(token, "session", content), signature):
                return self._session(token, cookie)
        return None

    def _session(self, token: Token, cookie: str) -> Session:
        return Session(token, cookie, self._sign(token, "form", cookie))

    def _sign(self, token: Token, purpose: str, content: str) -> str:
        key = token.sha256.encode() or self._own_key
        signed = hmac.digest(key, f"duebridge console {purpose} {content}".encode(), sha256)
        return urlsafe_b64encode(signed).decode().rstrip("=")
