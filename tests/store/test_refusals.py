"""What a store is refused for before anything is written to it."""

import pytest

from duebridge.errors import StoreUnfit
from duebridge.store import fitness
from duebridge.store.connection import Connection
from duebridge.store.keys import routes_key
from duebridge.store.record import LAYOUT
from duebridge.store.routes import Registry


@pytest.fixture(scope="module")
def connection() -> None:
    """One kind of server is enough here: `valkey`."""


def test_server_older_than_the_least_is_refused_by_its_version(
    valkey: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fitness.LEAST, "Valkey", (99, 0))
    with pytest.raises(StoreUnfit, match=r"version: expected Valkey 99\.0 or newer; got \d+\."):
        fitness.check_fitness(valkey)
    (told,) = fitness.check_fitness(valkey, ("version",))
    assert told.startswith("version: ")


def test_least_versions_are_those_that_the_contract_names() -> None:
    assert fitness.LEAST == {"Redis": (7, 0), "Valkey": (7, 2)}


def test_route_with_a_newer_record_layout_is_refused_and_left_as_it_is(valkey: Connection) -> None:
    key = routes_key("newer")
    valkey.client.hset(key, "r", f"{LAYOUT + 1}:1")
    with pytest.raises(StoreUnfit, match="upgrade duebridge"):
        Registry(valkey, "newer").open_route("r", 1)
    assert valkey.client.hget(key, "r") == b"%d:1" % (LAYOUT + 1)


def test_route_opened_again_keeps_its_first_number_of_shards(valkey: Connection) -> None:
    registry = Registry(valkey, "shards")
    assert registry.open_route("r", 4) == 4
    with pytest.raises(StoreUnfit, match=r"expected shards: 4.* make a new route .* drain"):
        registry.open_route("r", 2)
    assert registry.open_route("r", 4) == 4
