"""What a worker process sees of a store as a whole."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from duebridge.store.connection import Connection, open_connection
from duebridge.store.embedded import stop_embedded
from duebridge.worker.store_monitor import StoreWatch


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Connection]:
    connection = open_connection(f"embedded:{tmp_path}")
    yield connection
    connection.close()
    stop_embedded(tmp_path)


def test_watch_of_a_fit_store_sees_its_memory_and_what_is_forgotten(server: Connection) -> None:
    server.client.config_set("maxmemory", "1gb")
    watch = StoreWatch(server, lambda: {"old": 3})
    assert watch.sight is None
    watch.run_once()
    assert watch.sight is not None
    assert 0 < watch.sight.used_bytes < watch.sight.limit_bytes == 2**30
    assert (watch.sight.unfit, watch.sight.absent) == ((), {"old": 3})


def test_watch_of_a_store_that_became_unfit_names_what_nobody_allowed(server: Connection) -> None:
    server.client.config_set("maxmemory-policy", "allkeys-lru")
    server.client.config_set("appendonly", "no")
    watch = StoreWatch(server, dict, allow_unfit=("persistence",))
    watch.run_once()
    assert watch.sight is not None
    assert watch.sight.unfit == ("eviction",)


def test_watch_of_a_store_that_went_away_has_seen_nothing(
    server: Connection, open_at: Callable[..., Connection]
) -> None:
    watch = StoreWatch(server, dict)
    watch.run_once()
    gone = StoreWatch(open_at("redis://127.0.0.1:1/0"), dict)
    gone.sight = watch.sight
    gone.run_once()
    assert gone.sight is None
