"""`duebridge events`: what happened, in order, and what happens while one looks."""

import json
import signal

import pytest

from tests.support.command import Command, kill_due


def test_events_tell_a_life_in_the_order_of_time(duebridge: Command) -> None:
    duebridge("send", "reminders", "x", "--delay", "0s", "--id", "a")
    kill_due(duebridge, 1, "TooLarge\nbroke the limit")
    duebridge("dead", "replay", "reminders", "a", "--delay", "1h")
    duebridge("cancel", "reminders", "a")
    duebridge("send", "invoices", "x", "--delay", "1h", "--id", "b")
    everything = duebridge("events", "--output", "json")
    assert (everything.code, everything.err) == (0, "")
    events = everything.json_lines()
    assert [(each["kind"], each["id"]) for each in events] == [
        ("accepted", "a"), ("dead", "a"), ("replayed", "a"), ("cancelled", "a"), ("accepted", "b"),
    ]  # fmt: skip
    assert events[1] == {
        "kind": "dead", "at_ms": events[1]["at_ms"], "route": "reminders", "shard": 0, "id": "a",
        "due_at_ms": events[0]["due_at_ms"], "attempt": 1, "reason": "too_large",
    }  # fmt: skip
    assert [each["at_ms"] for each in events] == sorted(each["at_ms"] for each in events)
    of_route = duebridge("events", "reminders", "--limit", "2").out.splitlines()
    assert [line.split()[1:4] for line in of_route] == [
        ["replayed", "reminders", "a"],
        ["cancelled", "reminders", "a"],
    ]


def test_events_since_begins_there_and_limit_keeps_the_newest(duebridge: Command) -> None:
    lines = b"".join(b'{"body": "x", "delay": "1h", "id": "%d"}\n' % n for n in range(1_500))
    duebridge("send", "invoices", "-", "--jsonl", stdin=lines)
    assert len(duebridge("events").out.splitlines()) == 100
    assert len(duebridge("events", "--since", "1h").out.splitlines()) == 1_500
    assert len(duebridge("events", "--since", "1h", "--limit", "7").out.splitlines()) == 7
    assert duebridge("events", "--since", "2126-01-31T09:00:00Z") == (0, "", "")
    assert duebridge("events", "--limit", "0") == (0, "", "")


def test_events_follow_prints_what_comes_until_ctrl_c(duebridge: Command) -> None:
    duebridge("send", "reminders", "x", "--delay", "1h", "--id", "before")
    process = duebridge.start("events", "--follow", "--output", "json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["id"] == "before"
    duebridge("send", "invoices", "x", "--delay", "1h", "--id", "during")
    followed = json.loads(process.stdout.readline())
    assert (followed["kind"], followed["route"], followed["id"]) == (
        "accepted", "invoices", "during",
    )  # fmt: skip
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_events_follow_whose_reader_left_ends_quietly(duebridge: Command) -> None:
    duebridge("send", "reminders", "x", "--delay", "1h")
    process = duebridge.start("events", "--follow")
    assert process.stdout is not None
    assert b"accepted" in process.stdout.readline()
    process.stdout.close()
    duebridge("send", "reminders", "x", "--delay", "1h")
    assert process.wait(timeout=60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.communicate()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nothing"], "(invoices, reminders); got 'nothing'"),
        (["--since", "yesterday"], "--since: expected RFC 3339"),
        (["--since", "-5m"], "--since: expected a duration"),
        (["--limit", "-1"], "--limit"),
    ],
)
def test_events_of_what_is_not_exits_2(duebridge: Command, words: list[str], expected: str) -> None:
    refused = duebridge("events", *words)
    assert (refused.code, refused.out) == (2, "")
    assert expected in refused.err
    assert len(refused.err.splitlines()) == 1
