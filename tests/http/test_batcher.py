"""Single posts that share a call: if it goes wrong each is answered, and so is the next."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from duebridge.config.models import Config
from duebridge.errors import StoreUnavailable
from duebridge.http import batcher
from duebridge.http.app import build_app
from duebridge.http.site import Site
from duebridge.http.tokens import NoTokens
from duebridge.store.server.connection import open_connection
from tests.support.serving import CONFIG, ORDERS

WITHIN_S = 30.0  # a deadline, where a request would hang for ever


@pytest.fixture
def site(store_url: str) -> Iterator[Site]:
    connection = open_connection(store_url)
    site = Site(Config.model_validate(CONFIG), connection, NoTokens())
    yield site
    site.close()
    connection.close()


async def post(client: httpx.AsyncClient, many: int) -> list[int]:
    """The statuses of posts that arrive together."""
    given = {"body": "x", "delay": "1h"}
    async with asyncio.timeout(WITHIN_S):
        answers = await asyncio.gather(*(client.post(ORDERS, json=given) for _ in range(many)))
    return [each.status_code for each in answers]


def statuses_with(
    site: Site, monkeypatch: pytest.MonkeyPatch, name: str, instead: Any
) -> tuple[set[int], set[int]]:
    """The statuses of posts while the batcher has something else by a name, and after."""

    async def run() -> tuple[list[int], list[int]]:
        transport = httpx.ASGITransport(build_app(site), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            with monkeypatch.context() as patched:
                patched.setattr(batcher, name, instead)
                during = await post(client, 8)
            return during, await post(client, 8)

    during, after = asyncio.run(run())
    return set(during), set(after)


@pytest.mark.parametrize("name", ["size_bytes", "schedule_batch"])
def test_post_beside_a_defect_is_answered_and_so_is_the_next(
    name: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("canary")

    assert statuses_with(site, monkeypatch, name, broken) == ({500}, {201})


def test_post_whose_receipt_is_missing_is_answered(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = batcher.schedule_batch

    async def one_short(*given: Any) -> Any:
        return (await whole(*given))[:-1]

    during, after = statuses_with(site, monkeypatch, "schedule_batch", one_short)
    assert 500 in during
    assert during <= {201, 500}
    assert after == {201}


def test_post_that_was_stored_before_its_call_failed_is_answered_as_stored(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = batcher.schedule_batch

    async def cut(site: Site, key: Any, envelopes: Any, has_left: Any) -> Any:
        receipts = await whole(site, key, envelopes[:1], has_left)
        raise StoreUnavailable("away", [each.id for each in envelopes[1:]], receipts)

    during, after = statuses_with(site, monkeypatch, "schedule_batch", cut)
    assert during == {201, 503}
    assert after == {201}
