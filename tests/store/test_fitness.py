"""Servers that may hold envelopes, and servers that may not."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from duebridge.errors import StoreUnavailable, StoreUnfit
from duebridge.store.connection import Connection, open_connection
from duebridge.store.embedded import stop_embedded
from duebridge.store.fitness import check_fitness
from tests.store.servers import redis_server, wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Connection]:
    connection = open_connection(f"embedded:{tmp_path}")
    yield connection
    connection.close()
    stop_embedded(tmp_path)


def test_check_embedded_server_is_fit(server: Connection) -> None:
    assert check_fitness(server) == []


def test_check_redis_of_the_local_services_is_fit(redis_url: str) -> None:
    connection = open_connection(redis_url)
    assert check_fitness(connection) == []
    connection.close()


def test_check_names_everything_that_is_unfit_at_once(server: Connection) -> None:
    server.client.config_set("maxmemory-policy", "allkeys-lru")
    server.client.config_set("appendonly", "no")
    with pytest.raises(StoreUnfit) as refusal:
        check_fitness(server)
    text = str(refusal.value)
    assert "eviction: expected maxmemory-policy noeviction" in text
    assert "got allkeys-lru" in text
    assert "persistence: expected appendonly yes" in text


def test_check_server_of_another_kind_is_unfit(redis_url: str) -> None:
    with closing(open_connection(redis_url)) as other:
        other.client.set_response_callback("INFO", lambda *_, **__: {"redis_version": "soon"})
        with pytest.raises(StoreUnfit, match=r"what Redis or Valkey tells of itself; got .*soon"):
            check_fitness(other)


def test_check_server_that_reads_its_data_is_unavailable_not_unfit(tmp_path: Path) -> None:
    persisted = ("--appendonly", "yes", "--enable-debug-command", "yes")
    with redis_server(tmp_path, *persisted) as port, redis.Redis(port=port) as client:
        client.execute_command("DEBUG", "POPULATE", 20_000)
        client.bgrewriteaof()
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the file")
    slowly = ("--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024")
    with redis_server(tmp_path, *persisted, *slowly) as port:
        connection = open_connection(f"redis://127.0.0.1:{port}")
        with pytest.raises(StoreUnavailable, match="still reading its data"):
            check_fitness(connection)
        connection.close()


def test_check_unfit_that_is_allowed_by_name_is_only_told(server: Connection) -> None:
    server.client.config_set("maxmemory-policy", "volatile-ttl")
    with pytest.raises(StoreUnfit):
        check_fitness(server, ("persistence",))
    assert len(check_fitness(server, ("eviction",))) == 1
