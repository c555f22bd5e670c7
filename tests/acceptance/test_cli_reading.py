"""stats, dead ls and config check, and what every reading command prints where."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import PROGRAM, Command, embedded_command, kill_due

STATS = [
    "route", "pending", "ready", "unack", "retry", "dead", "oldest_due_age_ms", "held_since_ms",
    "shards",
]  # fmt: skip


@pytest.fixture
def duebridge(tmp_path: Path) -> Iterator[Command]:
    with embedded_command(tmp_path) as command:
        yield command


def test_stats_as_json_is_exactly_the_documented_object(duebridge: Command) -> None:
    duebridge("send", "invoices", "hello", "--delay", "1h")
    stats = duebridge("stats", "--output", "json")
    assert stats.code == 0
    assert set(stats.json()) == {"routes"}
    reminders, invoices = stats.json()["routes"]
    assert list(reminders) == STATS
    assert (reminders["route"], reminders["pending"], reminders["shards"]) == ("reminders", 0, 1)
    assert (invoices["route"], invoices["pending"], invoices["shards"]) == ("invoices", 1, 3)


def test_stats_counts_what_is_due_and_how_long(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", "--at", "2020-01-31T09:00:00Z")
    (reminders, _) = duebridge("stats", "--output", "json").json()["routes"]
    assert reminders["pending"] == 1
    assert reminders["oldest_due_age_ms"] > 0


def test_stats_marks_a_route_that_left_the_configuration(duebridge: Command) -> None:
    duebridge("send", "invoices", "hello", "--delay", "1h")
    text = duebridge.file.read_text()
    duebridge.file.write_text(text[: text.index("  invoices")])
    routes = duebridge("stats", "--output", "json").json()["routes"]
    assert [route["route"] for route in routes] == ["reminders", "invoices"]
    assert "configured" not in routes[0]
    assert (routes[1]["configured"], routes[1]["pending"], routes[1]["shards"]) == (False, 1, 3)
    table = duebridge("stats").out.splitlines()
    assert not table[1].endswith("not in the configuration")
    assert table[2].endswith("not in the configuration")


def test_stats_of_an_unused_route_opens_no_route(duebridge: Command) -> None:
    assert duebridge("stats").code == 0
    text = duebridge.file.read_text()
    duebridge.file.write_text(text.replace("shards: 3", "shards: 2"))
    assert duebridge("send", "invoices", "hello", "--delay", "1h").code == 0


def test_dead_ls_shows_why_each_is_dead(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", "--delay", "0s", "--id", "gone")
    kill_due(duebridge, 1, "TooLarge\nbroke\x1b[31m\nthe limit")
    table = duebridge("dead", "ls", "reminders")
    assert table.code == 0
    header, row = table.out.splitlines()
    assert header.split()[:4] == ["id", "reason", "attempt", "error"]
    assert row.split()[:3] == ["gone", "too_large", "1"]
    assert "TooLarge: broke\\x1b[31m\\nthe limit" in row
    (known,) = duebridge("dead", "ls", "reminders", "--output", "json").json_lines()
    assert (known["id"], known["reason"], known["state"]) == ("gone", "too_large", "dead")
    assert known["error_class"] == "TooLarge"
    assert 0 < known["first_failed_at_ms"] <= known["last_failed_at_ms"]


def test_cancel_and_reschedule_of_the_dead_exit_1(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", "--delay", "0s", "--id", "gone")
    kill_due(duebridge, 1, "TooLarge\nbroke the limit")
    assert duebridge("cancel", "reminders", "gone").code == 1
    moved = duebridge("reschedule", "reminders", "gone", "--delay", "1h", "--output", "json")
    assert (moved.code, moved.json()["status"]) == (1, "dead")
    shown = duebridge("get", "reminders", "gone")
    assert shown.code == 0
    assert "broke the limit" in shown.out


def test_config_check_of_a_good_file_needs_no_network(duebridge: Command) -> None:
    text = duebridge.file.read_text().replace(duebridge.url, "redis://127.0.0.1:1/0")
    duebridge.file.write_text(text)
    checked = duebridge("config", "check", "duebridge.yaml")
    assert checked == (0, "duebridge.yaml: ok (routes: 2, brokers: 1)\n", "")


def test_config_check_of_two_mistakes_exits_2_with_a_line_for_each(duebridge: Command) -> None:
    text = duebridge.file.read_text()
    text = text.replace("topic: reminders", "topc: reminders").replace("shards", "shard")
    duebridge.file.write_text(text)
    checked = duebridge("config", "check", "duebridge.yaml")
    assert (checked.code, checked.out) == (2, "")
    assert all(line.startswith("duebridge.yaml:") for line in checked.err.splitlines())
    assert "did you mean topic?" in checked.err
    assert "did you mean shards?" in checked.err


def test_dead_ls_into_head_is_quiet(duebridge: Command) -> None:
    duebridge("send", "reminders", "-", "--jsonl", stdin=b'{"body": "x", "delay": "0s"}\n' * 3_000)
    kill_due(duebridge, 3_000, "TooLarge\nbroke the limit")
    shell = f"'{PROGRAM}' dead ls reminders --limit 3000 --output json | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell], cwd=duebridge.home, capture_output=True
    )
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, b"", 1)


@pytest.mark.parametrize(("env", "is_colored"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_table_on_a_terminal_is_colored_unless_no_color(
    duebridge: Command, env: dict[str, str], is_colored: bool
) -> None:
    code, out = duebridge.on_terminal("stats", **env)
    assert code == 0
    assert b"reminders" in out
    assert (b"\x1b[" in out) is is_colored
    assert "\x1b" not in duebridge("stats", FORCE_COLOR="1").out


@pytest.mark.parametrize("words", [["--every", "1s"], ["--watch", "--every", "99ms"]])
def test_stats_every_of_no_watch_or_too_often_exits_2(duebridge: Command, words: list[str]) -> None:
    refused = duebridge("stats", *words)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("duebridge: --every: expected")


@pytest.mark.parametrize("output", ["json", "table"])
def test_stats_watch_prints_rounds_until_ctrl_c(duebridge: Command, output: str) -> None:
    words = ("stats", "--watch", "--every", "100ms", "--output", output)
    process = duebridge.start(*words)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(8)]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    if output == "json":
        for line in lines:
            assert [each["route"] for each in json.loads(line)["routes"]] == [
                "reminders",
                "invoices",
            ]
    else:
        assert [line.split()[:1] for line in lines] == 2 * [
            [b"route"],
            [b"reminders"],
            [b"invoices"],
            [],
        ]
