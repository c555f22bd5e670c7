"""`Idempotency-Key`: the same request is done once, and answered as at first."""

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from duebridge.store.cold.notes import ColdNotes
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import open_connection
from tests.support.serving import CONFIG, NDJSON, ORDERS, Served, serving

DAY_MS = 86_400_000


def post(client: httpx.Client, key: str, /, **given: Any) -> httpx.Response:
    whole = {"body": "x", "delay": "15m", **given}
    return client.post(ORDERS, json=whole, headers={"Idempotency-Key": key})


def test_key_repeated_answers_as_at_first_and_stores_once(
    served: Served, client: httpx.Client
) -> None:
    before = len(served.stored())
    first, again = post(client, "k-1"), post(client, "k-1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert len(served.stored()) == before + 1
    assert served.stored()[first.json()["id"]].remember_ms == DAY_MS


@pytest.mark.parametrize("other", [{"body": "y"}, {"delay": "16m"}, {"key": "k"}])
def test_key_with_other_content_is_refused(client: httpx.Client, other: dict[str, str]) -> None:
    key = f"k-other-{other}"
    first = post(client, key)
    answer = post(client, key, **other)
    assert (answer.status_code, answer.json()["title"]) == (422, "The key is taken")
    assert answer.json()["answer"]["id"] == first.json()["id"]


def test_key_of_what_has_ended_answers_as_at_first_and_takes_no_other(
    served: Served, client: httpx.Client
) -> None:
    first = post(client, "k-ended").json()
    assert client.delete(f"{ORDERS}/{first['id']}").status_code == 200
    again = post(client, "k-ended")
    assert (again.status_code, again.json()) == (201, first)
    assert post(client, "k-ended", body="y").status_code == 422
    assert first["id"] not in served.stored()


def go_cold(served: Served, route: str, name: str) -> None:
    """Let an envelope leave the store as `demote` does."""
    connection = open_connection(served.config.store.url)
    try:
        settings, namespace = served.config.routes[route], served.config.store.namespace
        store = RouteStore.open(connection, namespace, settings).of(name)
        ColdNotes(connection, store.shard).note_first(1)
        assert (entry := store.get(name)) is not None
        assert entry.record is not None
        assert store.demote("B", 0, [(name, entry.record.generation)]).removed == 1
    finally:
        connection.close()


def test_key_of_what_was_cancelled_while_cold_answers_as_at_first_and_revives_nothing(
    tmp_path: Path, store_url: str
) -> None:
    small = {**CONFIG["routes"]["small"], "cold_tier": {"path": str(tmp_path), "horizon": "2h"}}
    config, path = {**CONFIG, "routes": {"small": small}}, "/v1/routes/small/envelopes"
    given = {"json": {"body": "x", "at": int(time.time() * 1000) + DAY_MS}}
    key = {"Idempotency-Key": "k-cold"}
    with serving(tmp_path / "cold", store_url, config) as served, served.client() as client:
        first = client.post(path, **given, headers=key)
        go_cold(served, "small", name := first.json()["id"])
        assert client.delete(f"{path}/{name}").status_code == 202
        for _ in range(2):
            again = client.post(path, **given, headers=key)
            assert (again.status_code, again.json()) == (201, first.json())
            assert again.headers["idempotency-replayed"] == "true"
        assert served.stored("small") == {}


@pytest.mark.parametrize("first", ["k-content", None])
def test_key_is_no_part_of_the_content(client: httpx.Client, first: str | None) -> None:
    """Whoever repeats a request without its key, or adds one, means the same envelope."""
    whole = {"id": f"same-{first}", "body": "x", "delay": "15m"}
    keys: list[str | None] = [first, None if first else "k-later"]
    headers = [{"Idempotency-Key": key} if key else {} for key in keys]
    answers = [client.post(ORDERS, json=whole, headers=each) for each in headers]
    assert [each.json()["status"] for each in answers] == ["accepted", "duplicate"]


def test_key_of_another_token_is_another_key(served: Served, client: httpx.Client) -> None:
    with served.client("shop") as shop:
        assert post(client, "k-two").json()["id"] != post(shop, "k-two").json()["id"]


def test_key_beside_an_id_lengthens_only_the_memory(served: Served, client: httpx.Client) -> None:
    assert post(client, "k-id", id="named").json()["id"] == "named"
    again = post(client, "k-id", id="named")
    assert (again.status_code, again.json()["status"]) == (200, "duplicate")
    assert served.stored()["named"].remember_ms == DAY_MS
    assert post(client, "k-week", id="week", remember="1w").status_code == 201
    assert served.stored()["week"].remember_ms == 7 * DAY_MS


def test_key_beside_an_id_that_was_sent_without_one_lengthens_the_memory_too(
    served: Served, client: httpx.Client
) -> None:
    whole = {"id": "keyless", "body": "x", "delay": "15m"}
    assert client.post(ORDERS, json=whole).json()["status"] == "accepted"
    assert served.stored()["keyless"].remember_ms < DAY_MS
    assert post(client, "k-keyless", id="keyless").json()["status"] == "duplicate"
    assert served.stored()["keyless"].remember_ms == DAY_MS
    assert client.post(ORDERS, json=whole).json()["status"] == "duplicate"
    assert served.stored()["keyless"].remember_ms == DAY_MS, "nothing shortens it"


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_key_of_a_wrong_form_is_refused(client: httpx.Client, key: str) -> None:
    assert post(client, key).status_code == 400


def test_key_beside_replace_is_refused(client: httpx.Client) -> None:
    path = f"{ORDERS}?on_conflict=replace"
    answer = client.post(path, json={"body": "x", "delay": "1s"}, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 400


def test_key_of_lines_makes_an_id_a_line(served: Served, client: httpx.Client) -> None:
    before = len(served.stored())
    headers = {**NDJSON, "Idempotency-Key": "k-lines"}
    content = b'{"body": "1", "delay": "1h"}\n# note\n{"body": "1", "delay": "1h"}\n'
    first = client.post(ORDERS, content=content, headers=headers).text
    assert client.post(ORDERS, content=content, headers=headers).text == first
    assert len(served.stored()) == before + 2
    other = client.post(ORDERS, content=content.replace(b'"1"', b'"2"', 1), headers=headers)
    assert [line.count("conflict") for line in other.text.splitlines()] == [1, 0]


def test_key_of_a_change_answers_again_what_it_did(served: Served, client: httpx.Client) -> None:
    key = {"Idempotency-Key": "change"}
    for name in ("c-1", "c-2"):
        client.post(ORDERS, json={"id": name, "body": "x", "delay": "15m"})
    moved = client.patch(f"{ORDERS}/c-1", json={"delay": "1h"}, headers=key)
    client.patch(f"{ORDERS}/c-1", json={"delay": "2h"})
    again = client.patch(f"{ORDERS}/c-1", json={"delay": "1h"}, headers=key)
    assert (again.status_code, again.json()) == (200, moved.json())
    assert served.stored()["c-1"].due_at_ms > moved.json()["due_at_ms"], "it is done once"
    for _ in range(2):
        assert client.delete(f"{ORDERS}/c-2", headers=key).json()["status"] == "cancelled"
    assert client.delete(f"{ORDERS}/c-2").status_code == 404
