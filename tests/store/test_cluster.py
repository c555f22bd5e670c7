"""A Cluster that is away, closed to us, or does not serve our slot."""

import time

import pytest
import redis

from duebridge.errors import StoreUnavailable, StoreUnfit
from duebridge.store.connection import open_connection
from tests.store.servers import free_port, redis_cluster
from tests.store.test_connection import SECRET, StoreAt, store_at

__all__ = ["store_at"]  # a fixture


def test_cluster_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable) as refused:
        open_connection(f"redis+cluster://:{SECRET}@127.0.0.1:{free_port()}", 0.3)
    assert SECRET not in str(refused.value)


def test_wrong_password_of_a_cluster_is_unfit(tmp_path_factory: pytest.TempPathFactory) -> None:
    with redis_cluster(tmp_path_factory.mktemp("closed")) as url:
        with redis.Redis(port=int(url.rsplit(":", 1)[1])) as node:
            node.config_set("requirepass", SECRET)
        with pytest.raises(StoreUnfit) as refused:
            open_connection(url.replace("://", f"://:not-{SECRET}@"))
        assert SECRET not in str(refused.value)


def test_cluster_that_goes_away_is_unavailable(
    store_at: StoreAt, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with redis_cluster(tmp_path_factory.mktemp("gone")) as url:
        store = store_at(url)
        store.next()
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        store.next()
    assert time.monotonic() - started < 10


def test_cluster_that_lost_its_slots_is_unavailable(
    store_at: StoreAt, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with redis_cluster(tmp_path_factory.mktemp("slots")) as url:
        store = store_at(url)
        store.next()
        with redis.Redis(port=int(url.rsplit(":", 1)[1])) as node:
            node.execute_command("CLUSTER", "DELSLOTSRANGE", 0, 16383)
        with pytest.raises(StoreUnavailable):
            store.next()
