"""`events --follow` while the store restarts: it waits, says so once, and repeats no event."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.redis.redis_sets import RedisNode, server

AWAY = "; waiting for the store"
KEPT = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RedisNode]:
    """A server that a test kills and starts again with what it kept."""
    made = server(tmp_path / "redis", *KEPT)
    made.start()
    yield made
    made.kill()


def test_events_follow_over_two_restarts_prints_each_event_once(
    node: RedisNode, tmp_path: Path
) -> None:
    duebridge = Command(tmp_path, f"redis://127.0.0.1:{node.port}/0")
    sent = duebridge("send", "reminders", "x", "--delay", "1h", "--id", "first")
    assert sent.code == 0, sent.err
    process = duebridge.start("events", "--follow", "--output", "json")
    assert process.stdout is not None
    assert process.stderr is not None
    ids = [json.loads(process.stdout.readline())["id"]]
    for each in ("second", "third"):
        node.kill()
        assert process.stderr.readline().decode().endswith(f"{AWAY}\n")
        node.start()
        assert duebridge("send", "invoices", "x", "--delay", "1h", "--id", each).code == 0
        ids.append(json.loads(process.stdout.readline())["id"])
    assert ids == ["first", "second", "third"]
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 130
