"""Reads requests: their media type, and their bodies within a size and a time."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from duebridge.config.models import Config
from duebridge.http.problems import ProblemError

WRITTEN_FACTOR = 4  # of a body in JSON: base64 takes 4/3, escapes twice as much and more
AROUND_BYTES = 128 * 1024  # of an envelope beside its body: headers, key, target, properties
MERGE_PATCH = "application/merge-patch+json"
MOVE_BYTES = 4096  # of a PATCH
LENGTH_DIGITS = 20  # of a number of 64 bits, which the parser sees to; zeros may lead it


def media_type(request: Request) -> str:
    """Return the media type of a request, without parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_media_type(request: Request, *known: str) -> str:
    """Return the media type of a request if it is one of these; raises `ProblemError` 415."""
    if (found := media_type(request)) in known:
        return found
    expected = f"Content-Type: expected {' or '.join(known)}; got {found or 'none'}"
    raise ProblemError(415, "Unsupported media type", expected, {"Accept-Post": ", ".join(known)})


def check_encoding(request: Request) -> None:
    """Raise `ProblemError` 415 for a compressed body."""
    found = request.headers.get("content-encoding", "identity").lower()
    if found != "identity":
        detail = f"Content-Encoding: expected none; got {found}"
        raise ProblemError(415, "Unsupported encoding", detail, {"Accept-Encoding": "identity"})


def most_bytes(config: Config, route: str) -> int:
    """Return the most bytes that one envelope of a route takes as JSON."""
    return WRITTEN_FACTOR * config.routes[route].max_body + AROUND_BYTES


async def read_body(request: Request, most: int, within_s: float) -> bytes:
    """Return a body; raises `ProblemError` 413 for a larger one, 408 for one that takes longer."""
    given = request.headers.get("content-length", "0")
    if int(given[-LENGTH_DIGITS:]) > most:
        raise too_large(most)
    parts, size = [], 0
    try:
        async with asyncio.timeout(within_s):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise too_large(most)
                parts.append(part)
    except TimeoutError:
        raise too_slow(within_s) from None
    return b"".join(parts)


async def read_parts(
    request: Request, within_s: float, stop: asyncio.Event
) -> AsyncIterator[bytes]:
    """Yield a body's parts as they come, until its end or `stop`.

    Raises `ProblemError` 408 where a part takes longer, and `ClientDisconnect`.
    """
    stopping = asyncio.ensure_future(stop.wait())
    try:
        more = True
        while more and not stop.is_set():
            coming = asyncio.ensure_future(request.receive())
            await asyncio.wait((coming, stopping), timeout=within_s, return_when="FIRST_COMPLETED")
            if not coming.done():
                coming.cancel()
                if stop.is_set():
                    return
                raise too_slow(within_s)
            message = coming.result()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            more = message.get("more_body", False)
            yield message.get("body", b"")
    finally:
        stopping.cancel()


def too_large(most: int) -> ProblemError:
    """Return the refusal of what is longer; the connection ends, since the rest is not read."""
    detail = f"body: expected at most {most} bytes of this request; got more"
    return ProblemError(413, "Too large", detail, {"Connection": "close"})


def too_slow(within_s: float) -> ProblemError:
    """Return the refusal of what did not come in time; the connection ends."""
    detail = f"body: expected it within {within_s:g}s; got only a part"
    return ProblemError(408, "Too slow", detail, {"Connection": "close"})
