"""What readers of a cold tier touch after many nights; the C client beside jobs on Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from duebridge_connectors.spark.cold import cold_reader
from duebridge_connectors.spark.cold.commit_log import ColdLog
from tests.bench.spark import cold_year
from tests.bench.spark.limit import entries_read, limit, records_read, removed, written
from tests.support.servers import redis_server

NIGHTS, ROWS = 12, 20
MOVED = 300


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> ColdLog:
    made = ColdLog(str(tmp_path_factory.mktemp("year")), "cold")
    for day in range(NIGHTS):
        cold_year.night(made, day, ROWS, 2)
    return made


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The Parquet files that are read."""
    found: list[str] = []
    read_groups = cold_reader.read_groups

    def noting(files: object, path: str, *given: object) -> object:
        found.append(path)
        return read_groups(files, path, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(cold_reader, "read_groups", noting)
    return found


@pytest.mark.parametrize("day", [0, NIGHTS // 2, NIGHTS - 1])
def test_get_after_many_nights_reads_the_file_of_its_id_and_the_lists(
    log: ColdLog, opened: list[str], day: int
) -> None:
    home = str(Path(log.root).parent)
    state = log.state()
    late = ROWS - 1  # of the rows of a night, sorted by due: still cold
    cold_year.get(home, f"b{day}-{late}")
    lists = [path for path in opened if "pulled=" in path]
    assert len(lists) == len(state.pulled)
    assert len(opened) - len(lists) <= 2, "another file's filter took the id for its own"
    opened.clear()
    cold_year.get(home, "absent")
    assert len(opened) <= 1


def test_files_after_many_nights_are_few(log: ColdLog) -> None:
    state = log.state()
    assert len(state.files) < NIGHTS
    assert len(state.pulled) < NIGHTS


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    """A store with records, their index, and a journal of them."""
    with redis_server(tmp_path) as port, redis.Redis(port=port) as client:
        for number in range(MOVED):
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
    assert limit(client, tmp_path, MOVED, written) > 0
    assert content(client) == before


def test_remove_by_the_c_client_leaves_the_journal_alone(client: Any, tmp_path: Path) -> None:
    before = content(client)
    assert limit(client, tmp_path, MOVED, removed) > 0
    assert content(client) == {"records": {}, "index": [], "journal": 2 * before["journal"]}


@pytest.mark.parametrize("read", [entries_read, records_read])
def test_read_by_the_c_client_asks_for_all_once(client: Any, tmp_path: Path, read: Any) -> None:
    before = content(client)
    client.config_resetstat()
    assert limit(client, tmp_path, MOVED, read) > 0
    calls = client.info("commandstats")
    pages = {name: calls.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("xrange", "hmget")}
    assert pages == (
        {"xrange": 38, "hmget": 0} if read is entries_read else {"xrange": 0, "hmget": 1}
    )
    assert content(client) == before
