"""The token provider of docs/security.md, with unsigned tokens, which Kafka takes for tests."""

import base64
import json
import time

asked: list[float] = []  # when a token was asked for


def kafka_token() -> tuple[str, float]:
    """Return a token without a signature, for an hour."""
    now = time.time()
    asked.append(now)
    return unsecured("shop", now), now + 3600


def unsigned_for_nobody() -> tuple[str, float]:
    """Return what the broker does not take: a token without a subject."""
    return unsecured("", time.time()), time.time() + 3600


def broken() -> tuple[str, float]:
    raise RuntimeError("canary-token-77")


def expired() -> tuple[str, float]:
    return "canary-token-77", time.time() - 1


def unsecured(subject: str, now: float) -> str:
    claims = {"sub": subject, "iat": now - 1, "exp": now + 3600}
    parts = (json.dumps(each).encode() for each in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in parts) + "."
