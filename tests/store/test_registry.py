"""A route leaves the store whole, on every kind of server."""

import secrets
from collections.abc import Iterator

import pytest

from duebridge.envelope import Envelope
from duebridge.errors import StoreError
from duebridge.store.connection import Connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.registry import RegisteredRoute, Registry

SHARDS = 3


@pytest.fixture
def namespace(connection: Connection) -> Iterator[str]:
    namespace = f"test-{secrets.token_hex(6)}"
    yield namespace
    for key in keys(connection, namespace):
        connection.client.unlink(key)


@pytest.fixture
def registry(connection: Connection, namespace: str) -> Registry:
    """Two routes, each with an envelope on every shard."""
    registry = Registry(connection, namespace)
    for route in ("over", "kept"):
        registry.open_route(route, SHARDS)
        for number in range(SHARDS):
            store = DelayStore(connection, Shard(namespace, route, number))
            store.schedule([Envelope.new(b"body", delay="1h")], max_delay_ms=10**9)
    return registry


def keys(connection: Connection, namespace: str) -> set[str]:
    found = connection.client.scan_iter(match=f"{{{namespace}*", count=1000)
    return {key.decode() for key in found}


def test_remove_route_leaves_no_key_of_it_and_every_other(
    registry: Registry, connection: Connection, namespace: str
) -> None:
    kept = {key for key in keys(connection, namespace) if ":over:" not in key}
    registry.remove_route("over", SHARDS)
    assert keys(connection, namespace) == kept
    assert registry.routes() == {"kept": RegisteredRoute(1, SHARDS)}


def test_remove_route_interrupted_is_found_and_removed_again(
    registry: Registry, connection: Connection, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise TypeError

    with monkeypatch.context() as patch:
        patch.setattr(connection.client, "hdel", interrupt)
        with pytest.raises(StoreError):
            registry.remove_route("over", SHARDS)
    assert "over" in registry.routes()
    registry.remove_route("over", SHARDS)
    registry.remove_route("kept", SHARDS)
    assert keys(connection, namespace) == set()
