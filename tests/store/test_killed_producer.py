"""A producer that is killed while it schedules leaves whole envelopes, and nothing else."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from duebridge.store.connection import Connection, open_connection
from duebridge.store.embedded import stop_embedded
from tests.support.checkout import ROOT
from tests.support.desk import Desk
from tests.support.servers import wait_until

KILLS = 5
BATCH = 50
PRODUCER = """
import sys, uuid
from duebridge.envelope import Envelope
from duebridge.store.connection import open_connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard

store = DelayStore(open_connection(sys.argv[1]), Shard(sys.argv[2], "route", 0))
while True:
    batch = [Envelope.new(b"body", delay="1h", remember="1h") for _ in range(int(sys.argv[3]))]
    store.schedule(batch, max_delay_ms=10**9, replace=True)
    print(*(each.id for each in batch), flush=True)
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("producer")
    yield f"embedded:{home}"
    stop_embedded(home)


@pytest.fixture(scope="module")
def connection(url: str) -> Iterator[Connection]:
    opened = open_connection(url)
    yield opened
    opened.close()


def test_killed_producer_leaves_no_orphan_and_loses_nothing_accepted(
    connection: Connection, url: str, tmp_path: Path
) -> None:
    desk = Desk(connection, "killed")
    answered: set[str] = set()
    for _ in range(KILLS):
        answered |= kill_amid_work(url, desk, tmp_path / "ids")
    found = desk.check()
    pending = {name.decode() for name, _ in found["pending"]}
    assert answered <= pending
    assert len(pending) <= len(answered) + KILLS * BATCH
    assert len(pending) % BATCH == 0, "a batch was accepted in part"
    journalled = [name for _, ids in desk.journal() for name in ids]
    assert sorted(journalled) == sorted(pending)


def kill_amid_work(url: str, desk: Desk, output: Path) -> set[str]:
    """Let a producer accept some batches, kill it; returns the ids that it was told of."""
    before = desk.store.next().pending
    command = [sys.executable, "-c", PRODUCER, url, desk.shard.namespace, str(BATCH)]
    with output.open("wb") as ids, subprocess.Popen(command, stdout=ids, cwd=ROOT) as producer:
        try:
            wait_until(lambda: desk.store.next().pending >= before + 10 * BATCH, "some batches")
        finally:
            producer.kill()
    whole_lines = output.read_text().rpartition("\n")[0]
    return set(whole_lines.split())
