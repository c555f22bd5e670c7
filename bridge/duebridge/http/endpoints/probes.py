"""Answers `/livez`, `/readyz` and `/metrics`."""

import asyncio
from concurrent.futures import Future

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from duebridge.errors import StoreError
from duebridge.http.operations import AuthorizedCall
from duebridge.http.site import Site
from duebridge.runtime import in_background
from duebridge.store.delay_store import DelayStore

READY_WITHIN_S = 2.0


async def livez(_: Request) -> Response:
    """Say that the process serves requests."""
    return PlainTextResponse("ok")


class Readiness:
    """Tells whether requests can be answered: by any node of the store that has a route's shard.

    Each node is asked by a thread of its own, once at a time: no request that waits for a node, and
    no node that is silent, delays the answer of another.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._asked: dict[str, Future[bool]] = {}

    async def is_ready(self) -> bool:
        """Whether a node of the store answers, and the process is not to stop."""
        if self._site.draining.is_set():
            return False
        stores = self._site.operator.one_a_node()
        left = {asyncio.wrap_future(self._ask(each)) for each in stores}
        ends_at = asyncio.get_running_loop().time() + READY_WITHIN_S
        while left and (left_s := ends_at - asyncio.get_running_loop().time()) > 0:
            done, left = await asyncio.wait(
                left, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            if any(each.result() for each in done):
                return True
        return False

    def _ask(self, store: DelayStore) -> "Future[bool]":
        """Begin to ask the node of a shard, unless an earlier request still does."""
        node = self._site.connection.node_of(store.shard.wake)
        asked = self._asked.get(node)
        if asked is None or asked.done():
            asked = self._asked[node] = in_background(lambda: _answers(store), "readyz")
        return asked


def _answers(store: DelayStore) -> bool:
    try:
        store.next()
    except StoreError:
        return False
    return True


async def metrics(_: AuthorizedCall) -> Response:
    """Return the counters of this process, for Prometheus."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
