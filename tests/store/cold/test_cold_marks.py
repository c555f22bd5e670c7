"""All marks of a shard are read, also where another server takes over in the middle."""

from pathlib import Path
from typing import Any

import pytest
import redis

from duebridge.store.cold.notes import ColdNotes
from duebridge.store.keys import Shard
from duebridge.store.server.connection import open_connection
from tests.support.redis.replicas import replicated

SHARD = Shard("marks", "r", 0)
MARKS = {f"xB/{number}": b"" for number in range(20_000)}


@pytest.mark.parametrize("pages", [1, 3, 7])
def test_marks_are_complete_where_another_server_takes_over_between_two_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    """An address that follows the master: the same client, and another server's cursors."""
    with replicated(tmp_path, replicas=1) as servers:
        connection = open_connection(servers.url)
        client: Any = connection.client
        client.hset(SHARD.key("memory"), mapping=MARKS)
        servers.await_caught_up()
        scan, calls = client.hscan, iter(range(1_000_000))

        def hscan(*given: Any, **named: Any) -> Any:
            if next(calls) == pages:
                client.connection_pool = redis.ConnectionPool(port=servers.replicas[0].port)
            return scan(*given, **named)

        monkeypatch.setattr(client, "hscan", hscan)
        found = ColdNotes(connection, SHARD).marks()
        connection.close()
    assert {mark.name for mark in found} == set(MARKS)
