"""The C client beside the jobs on Spark: it writes what they write."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.bench.spark.limit import entries_read, limit, records_read, removed, written
from tests.support.servers import redis_server

ROWS = 300


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    """A store with records, their index, and a journal of them."""
    with redis_server(tmp_path) as port, redis.Redis(port=port) as client:
        for number in range(ROWS):
            client.hset("envelopes", f"id{number}", b"\0\r\n" * number)
            client.zadd("pending", {f"id{number}": 1_770_000_000_000 + number})
            client.xadd("journal", {"k": "accepted", "i": b"\xff"}, id=f"{number + 1}-0")
        yield client


def content(client: Any) -> dict[str, Any]:
    entries = [fields for _, fields in client.xrange("journal")]
    scores = client.zrange("pending", 0, -1, withscores=True)
    return {"records": client.hgetall("envelopes"), "index": scores, "journal": entries}


def test_write_by_the_c_client_leaves_the_bytes_that_were_there(
    client: Any, tmp_path: Path
) -> None:
    before = content(client)
    assert limit(client, tmp_path, ROWS, written) > 0
    assert content(client) == before


def test_remove_by_the_c_client_leaves_the_journal_alone(client: Any, tmp_path: Path) -> None:
    before = content(client)
    assert limit(client, tmp_path, ROWS, removed) > 0
    assert content(client) == {"records": {}, "index": [], "journal": 2 * before["journal"]}


@pytest.mark.parametrize("read", [entries_read, records_read])
def test_read_by_the_c_client_asks_for_all_once(client: Any, tmp_path: Path, read: Any) -> None:
    before = content(client)
    client.config_resetstat()
    assert limit(client, tmp_path, ROWS, read) > 0
    calls = client.info("commandstats")
    pages = {name: calls.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("xrange", "hmget")}
    assert pages == (
        {"xrange": 38, "hmget": 0} if read is entries_read else {"xrange": 0, "hmget": 1}
    )
    assert content(client) == before
