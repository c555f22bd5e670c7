"""`events --follow` and `stats --watch`: what comes, each once while the store is away."""

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import PROGRAM, Command
from tests.support.redis.redis_node import RedisNode
from tests.support.servers import wait_until

AWAY = "; waiting for the store"
OLDER = b"duebridge: older events are not printed; --since prints all from an instant on\n"


def send(duebridge: Command, route: str, name: str) -> None:
    sent = duebridge("send", route, "x", "--delay", "1h", "--id", name)
    assert sent.code == 0, sent.err


def following(duebridge: Command) -> subprocess.Popen[bytes]:
    """A follower that has printed the event of `before`."""
    send(duebridge, "reminders", "before")
    process = duebridge.start("events", "--follow", "--output", "json")
    assert next_event(process)["id"] == "before"
    return process


def next_event(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_events_follow_prints_what_comes_of_later_routes_too_until_ctrl_c(
    duebridge: Command,
) -> None:
    process = following(duebridge)
    send(duebridge, "invoices", "during")
    event = next_event(process)
    assert (event["kind"], event["route"], event["id"]) == ("accepted", "invoices", "during")
    more = "  orders: {target: {broker: here, topic: orders}, shards: 2}\n"
    config = duebridge.file.read_text().replace("routes:\n", f"routes:\n{more}")
    duebridge.file.write_text(config)
    send(duebridge, "orders", "later")
    assert next_event(process)["id"] == "later"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_events_follow_that_is_kept_tells_of_older_events_unless_since_is_given(
    duebridge: Command,
) -> None:
    lines = [json.dumps({"id": f"{each}", "body": "", "delay": "1h"}) for each in range(101)]
    duebridge("send", "invoices", "-", "--jsonl", stdin="\n".join(lines).encode())
    for options, count, told in ((), 100, OLDER), (("--since", "1h"), 101, b""):
        process = duebridge.start("events", "--follow", "--output", "json", *options)
        assert len({next_event(process)["id"] for _ in range(count)}) == count
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == (b"", told)


def test_events_follow_whose_reader_left_ends_quietly(duebridge: Command) -> None:
    send(duebridge, "reminders", "before")
    process = duebridge.start("events", "--follow")
    assert process.stdout is not None
    assert b"accepted" in process.stdout.readline()
    process.stdout.close()
    send(duebridge, "reminders", "after")
    assert process.wait(timeout=60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.communicate()


def test_events_follow_over_two_restarts_prints_each_event_once(
    own_redis: RedisNode, tmp_path: Path
) -> None:
    duebridge = Command(tmp_path, own_redis.url)
    send(duebridge, "reminders", "first")
    process = duebridge.start("events", "--follow", "--output", "json")
    assert process.stderr is not None
    ids = [next_event(process)["id"]]
    for each in ("second", "third"):
        own_redis.kill()
        assert process.stderr.readline().decode().endswith(f"{AWAY}\n")
        own_redis.start()
        send(duebridge, "invoices", each)
        ids.append(next_event(process)["id"])
    assert ids == ["first", "second", "third"]
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 130


def test_events_follow_whose_password_is_refused_goes_on_once_it_is_taken(
    own_redis: RedisNode, tmp_path: Path
) -> None:
    duebridge = Command(tmp_path, own_redis.url)
    process = following(duebridge)
    assert process.stderr is not None
    with own_redis.client() as server:
        server.config_set("requirepass", "new")
        server.client_kill_filter(_type="normal", skipme=True)
        assert process.stderr.readline().decode().endswith(f"{AWAY}\n")
        wait_until(lambda: "errorstat_NOAUTH" in server.info("errorstats"), "a refusal")
        server.config_set("requirepass", "")
    send(duebridge, "invoices", "after")
    assert next_event(process)["id"] == "after"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"")


@pytest.mark.parametrize("shown", ['"invoices","pending":1', "invoices +1 "])
def test_stats_watch_over_a_restart_says_so_once_and_goes_on(
    own_redis: RedisNode, tmp_path: Path, shown: str
) -> None:
    duebridge = Command(tmp_path, own_redis.url)
    output = "json" if '"' in shown else "table"
    send(duebridge, "reminders", "before")
    process = duebridge.start("stats", "--watch", "--every", "100ms", "--output", output)
    assert process.stdout is not None
    assert process.stderr is not None
    assert b"reminders" in process.stdout.readline() + process.stdout.readline()
    own_redis.kill()
    assert process.stderr.readline().decode().endswith(f"{AWAY}\n")
    own_redis.start()
    send(duebridge, "invoices", "after")
    next(line for line in process.stdout if re.search(shown, line.decode()))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")


def test_stats_watch_on_a_terminal_tells_of_an_outage_beneath_the_table(
    own_redis: RedisNode, tmp_path: Path
) -> None:
    duebridge = Command(tmp_path, own_redis.url)
    send(duebridge, "reminders", "before")
    ours, theirs = pty.openpty()
    command = [PROGRAM, "stats", "--watch", "--every", "100ms"]
    with subprocess.Popen(
        command, cwd=duebridge.home, stdout=theirs, stderr=subprocess.DEVNULL
    ) as process:
        os.close(theirs)
        try:
            read_until(ours, b"reminders")
            own_redis.kill()
            assert b"reminders" in read_until(ours, b"waiting")
            own_redis.start()
            send(duebridge, "invoices", "after")
            read_until(ours, b"invoices")
        finally:
            process.kill()
    os.close(ours)


def read_until(terminal: int, wanted: bytes) -> bytes:
    shown = b""
    while wanted not in shown:
        shown += os.read(terminal, 65536)
    return shown
