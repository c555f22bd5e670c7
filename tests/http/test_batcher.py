"""Single posts that share a call: if it goes wrong each is answered, and so is the next."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from duebridge.config.models import Config
from duebridge.envelope import Envelope
from duebridge.errors import StoreFull, StoreUnavailable
from duebridge.http import batcher
from duebridge.http.app import build_app
from duebridge.http.batcher import BatchKey, ScheduleBatcher
from duebridge.http.endpoints import lines
from duebridge.http.problems import ProblemError
from duebridge.http.site import Site
from duebridge.http.tokens import LOCAL, NoTokens
from duebridge.receipt import Receipt
from duebridge.store.server.connection import open_connection
from tests.support.serving import CONFIG, NDJSON, ORDERS

WITHIN_S = 30.0  # a deadline, where a request would hang for ever


@pytest.fixture
def site(store_url: str) -> Iterator[Site]:
    connection = open_connection(store_url)
    site = Site(Config.model_validate(CONFIG), connection, NoTokens())
    yield site
    site.close()
    connection.close()


@asynccontextmanager
async def asking(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application, in this process."""
    transport = httpx.ASGITransport(build_app(site), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


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
        async with asking(site) as client:
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


def failing(
    answered: int, known: tuple[str, ...] = ("refused", "accepted")
) -> Callable[..., Awaitable[list[Receipt]]]:
    """A call that fails once it has the receipts of so many envelopes, of these statuses."""

    async def call(_: Site, __: Any, envelopes: Sequence[Envelope], *___: Any) -> list[Receipt]:
        left = [each.id for each in envelopes[answered:]]
        receipts = [
            Receipt(each.id, "orders", 1, status, "no" if status == "refused" else "")
            for each, status in zip(envelopes[:answered], known, strict=False)
        ]
        raise StoreFull("full", left, receipts)

    return call


def test_posts_of_one_id_in_a_call_that_failed_get_their_own_answers(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> list[int]:
        async with asking(site) as client:
            given = [{"id": name, "body": "x", "delay": "1h"} for name in ("X", "X", "Y")]
            async with asyncio.timeout(WITHIN_S):
                answers = await asyncio.gather(*(client.post(ORDERS, json=each) for each in given))
        return [each.status_code for each in answers]

    monkeypatch.setattr(batcher, "schedule_batch", failing(2))
    assert asyncio.run(run()) == [422, 201, 503]


def test_lines_that_were_stored_before_their_call_failed_are_answered_as_stored(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> list[str]:
        async with asking(site) as client:
            given = [{"id": name, "body": "x", "delay": "1h"} for name in ("X", "X", "Y")]
            content = "".join(f"{json.dumps(each)}\n" for each in given)
            answer = await client.post(ORDERS, content=content, headers=NDJSON)
        assert answer.status_code == 200, answer.text
        return [json.loads(line)["status"] for line in answer.text.splitlines()]

    monkeypatch.setattr(lines, "schedule_batch", failing(2))
    assert asyncio.run(run()) == ["refused", "accepted", "unavailable"]


def test_post_whose_token_is_removed_while_it_waits_stores_nothing(site: Site) -> None:
    def removed() -> None:
        raise ProblemError(401, "Unauthorized", "expected a token")

    async def run() -> None:
        batch, key = ScheduleBatcher(site), BatchKey(LOCAL, "orders")
        envelope = Envelope.new("x", id="removed", delay="1h")
        with pytest.raises(ProblemError):
            await batch.schedule(key, envelope, check=removed)

    asyncio.run(run())
    assert site.scheduler("orders").store.of("removed").get("removed") is None
