"""What a worker needs of the store in the moment of its start: neither room nor luck."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from duebridge.producer import Producer
from duebridge.store.server.connection import open_connection
from duebridge.worker.process import Runner
from tests.acceptance.works import Works, started
from tests.support.network.proxy import proxied
from tests.support.servers import redis_server


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server of our own, which a test may fill."""
    with redis_server(tmp_path_factory.mktemp("own"), "--appendonly", "yes") as opened:
        yield opened


@pytest.fixture
def works(port: int) -> Works:
    return Works(f"redis://127.0.0.1:{port}", {"r": "a/t"})


def test_worker_starts_on_a_full_store_and_empties_it(works: Works) -> None:
    for name in ("due", "moved"):
        works.producer.schedule("r", b"x", delay="1ms" if name == "due" else "1h", id=name)
    client = works.connection.client
    client.config_set("maxmemory", 1)
    try:
        operator = Producer(works.config, works.connection)
        assert operator.reschedule("r", "moved", delay="1ms") == "rescheduled"
        works.runner = Runner(works.config, works.connection, works.publishers)
        with started(works):
            works.await_arrivals(2)
    finally:
        with closing(open_connection(str(works.url))) as connection:
            connection.client.config_set("maxmemory", 0)


def test_worker_starts_though_its_first_connections_are_dropped(works: Works, port: int) -> None:
    works.schedule("a")
    with proxied(port) as proxy:
        proxy.refuse(3)
        connection = open_connection(f"redis://127.0.0.1:{proxy.port}")
        works.runner = Runner(works.config, connection, works.publishers)
        assert proxy.refused == 3
        with started(works):
            works.await_arrivals(1)
        connection.close()
