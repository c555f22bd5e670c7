"""`Idempotency-Key`: by which a request that is made again is known.

token, key, line ─▶ the id of an envelope without one of its own, which is remembered for a day
token, key, what ─▶ the call id of a change, under which the store keeps its answer for a day
"""

from base64 import b32hexencode
from hashlib import blake2b

import msgspec
from starlette.requests import Request

from duebridge.errors import shown
from duebridge.http.problems import ProblemError
from duebridge.http.tokens import Token
from duebridge.receipt import Receipt
from duebridge.store.batching import CALL_ID_BYTES, CallId

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEPT_MS = 24 * 3_600_000
MOST = 255  # characters of a key
ID_CHARACTERS = 20  # 100 bits, as of a random id
ENDED = ("duplicate", "cancelled", "dead")
_encode = msgspec.msgpack.Encoder().encode


def key_of(request: Request) -> str | None:
    """Return the key of a request, if it has one; raises `ProblemError` 400."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not 1 <= len(key) <= MOST or not key.isprintable():
        detail = f"{HEADER}: expected 1 to {MOST} printable characters; got {shown(key)}"
        raise ProblemError(400, "Bad request", detail)
    return key


def made_id(token: Token, key: str, line: int) -> str:
    """Return the id of the envelope in a line of the request with this key."""
    return b32hexencode(_digest(20, token.name, key, line))[:ID_CHARACTERS].decode().lower()


def call_id(token: Token, key: str | None, *what: str) -> CallId | None:
    """Return the id of the call that makes a change, None without a key."""
    if key is None:
        return None
    return CallId(_digest(CALL_ID_BYTES, token.name, key, *what), KEPT_MS)


def is_replayed(receipt: Receipt) -> bool:
    """Whether the receipt of a made id says that this request was accepted before."""
    return receipt.status in ENDED


def as_at_first(receipt: Receipt) -> Receipt:
    """Return the receipt of a made id as it was when its request was first made."""
    return msgspec.structs.replace(receipt, status="accepted") if is_replayed(receipt) else receipt


def _digest(size: int, *parts: str | int) -> bytes:
    return blake2b(_encode(parts), digest_size=size).digest()
