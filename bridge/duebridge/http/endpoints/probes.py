"""Answers `/livez`, `/readyz` and `/metrics`."""

import asyncio

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from duebridge.errors import StoreError
from duebridge.http.operations import AuthorizedCall
from duebridge.http.site import Site

READY_WITHIN_S = 2.0


async def livez(_: Request) -> Response:
    """Say that the process serves requests."""
    return PlainTextResponse("ok")


async def is_ready(site: Site) -> bool:
    """Whether the store answers, and the process is not to stop."""
    if site.draining.is_set():
        return False
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            await site.run(site.operator.now_ms)
    except (StoreError, TimeoutError):
        return False
    return True


async def metrics(_: AuthorizedCall) -> Response:
    """Return the counters of this process, for Prometheus."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
