"""send, cancel, reschedule and get: one envelope from a terminal, and many to cancel."""

import json
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from duebridge.store.routing import RouteStore
from tests.acceptance.desk_of_operator import break_shard
from tests.support.command import Command, kill_due

ONE_HOUR = ("--delay", "1h", "--id", "a", "--output", "json")
RECEIPT = {"id", "route", "due_at_ms", "status"}
KNOWN = {
    "id", "route", "state", "due_at_ms", "scheduled_at_ms", "expires_at_ms", "attempt", "failures",
    "expiries", "reason", "error_class", "error_message", "first_failed_at_ms", "last_failed_at_ms",
    "letter_error",
}  # fmt: skip
SHOWN = {
    "remember_ms", "max_attempts", "target", "key", "headers", "properties", "body_size_bytes",
}  # fmt: skip
ENDED_MS = 1_767_225_600_000


def test_send_with_delay_prints_receipt_as_json(duebridge: Command) -> None:
    before_ms = time.time_ns() // 1_000_000
    sent = duebridge("send", "reminders", "hello", *ONE_HOUR)
    assert (sent.code, sent.err) == (0, "")
    receipt = sent.json()
    assert set(receipt) == RECEIPT
    assert (receipt["id"], receipt["route"], receipt["status"]) == ("a", "reminders", "accepted")
    assert before_ms + 3_600_000 <= receipt["due_at_ms"] <= before_ms + 3_660_000


def test_send_without_id_prints_a_line_that_get_finds(duebridge: Command) -> None:
    sent = duebridge("send", "reminders", "hello", "--delay", "1h")
    status, due, envelope_id = sent.out.split()
    assert (sent.code, status) == (0, "accepted")
    known = duebridge("get", "reminders", "--", envelope_id)  # it may begin with a dash
    assert known.code == 0
    assert due in known.out


def test_send_other_content_conflicts_and_exits_1(duebridge: Command) -> None:
    duebridge("send", "reminders", "one", *ONE_HOUR)
    refused = duebridge("send", "reminders", "two", *ONE_HOUR)
    assert (refused.code, refused.json()["status"]) == (1, "conflict")
    replaced = duebridge("send", "reminders", "two", *ONE_HOUR, "--on-conflict", "replace")
    assert (replaced.code, replaced.json()["status"]) == (0, "replaced")


def test_send_of_a_remembered_id_that_was_cancelled_says_so_and_exits_1(
    duebridge: Command,
) -> None:
    line = b'{"body": "hi", "id": "a", "delay": "1h", "remember": "1h"}'
    words = ("send", "reminders", "-", "--jsonl", "--output", "json")
    duebridge(*words, stdin=line)
    duebridge("cancel", "reminders", "a")
    refused = duebridge(*words, stdin=line)
    assert (refused.code, refused.json()["status"]) == (1, "cancelled")
    assert "line 1: cancelled: id a; it ended so before, --on-conflict replace" in refused.err
    replaced = duebridge(*words, "--on-conflict", "replace", stdin=line)
    assert (replaced.code, replaced.json()["status"]) == (0, "replaced")


def test_send_from_file_and_standard_input_is_the_same_body(duebridge: Command) -> None:
    body = bytes(range(256))
    (duebridge.home / "body.bin").write_bytes(body)
    assert duebridge("send", "reminders", "--file", "body.bin", *ONE_HOUR).code == 0
    again = duebridge("send", "reminders", "-", *ONE_HOUR, stdin=body)
    assert again.json()["status"] == "duplicate"


def test_send_with_every_field_is_the_same_as_its_json_line(duebridge: Command) -> None:
    options = ("--key", "k", "--header", "a=1", "--header", "b=x=y", "--content-type", "text/plain")
    more = ("--expires", "2h", "--max-attempts", "3", "--delay", "1h", "--id", "a")
    assert duebridge("send", "reminders", "hi", *options, *more).code == 0
    line = {
        "body": {"base64": "aGk="}, "key": "k", "headers": [["a", "1"], ["b", "x=y"]],
        "content_type": "text/plain", "expires": "2h", "max_attempts": 3, "delay": "1h", "id": "a",
    }  # fmt: skip
    words = ("send", "reminders", "-", "--jsonl", "--output", "json")
    assert duebridge(*words, stdin=json.dumps(line).encode()).json()["status"] == "duplicate"


def test_get_known_id_has_the_fields_of_the_python_api(duebridge: Command) -> None:
    duebridge("send", "invoices", "hello", *ONE_HOUR)
    known = duebridge("get", "invoices", "a", "--output", "json")
    assert known.code == 0
    assert set(known.json()) == KNOWN | SHOWN
    assert known.json()["state"] == "pending"


@pytest.mark.parametrize("output", ["table", "json"])
def test_get_unknown_id_exits_1_with_one_line(duebridge: Command, output: str) -> None:
    unknown = duebridge("get", "reminders", "no\x1b[31msuch", "--output", output)
    assert (unknown.code, unknown.out) == (1, "")
    assert "\x1b" not in unknown.err
    assert len(unknown.err.splitlines()) == 1


WHOLE = {"body": "hi", "delay": "1h", "id": "a", "key": "k", "headers": {"n": 1}, "priority": 7}


def send_whole(duebridge: Command) -> None:
    line = json.dumps(WHOLE).encode()
    assert duebridge("send", "reminders", "-", "--jsonl", stdin=line).code == 0


def test_get_shows_the_content_and_the_body_on_demand(duebridge: Command) -> None:
    send_whole(duebridge)
    known = duebridge("get", "reminders", "a", "--output", "json").json()
    assert (known["key"], known["headers"]) == ("k", [["n", 1]])
    assert (known["properties"], known["body_size_bytes"]) == ({"priority": 7}, 2)
    whole = duebridge("get", "reminders", "a", "--body", "--output", "json").json()
    assert whole == {**known, "body": "hi"}
    rows = [line.split() for line in duebridge("get", "reminders", "a", "--body").out.splitlines()]
    for row in (["key", "k"], ["header", "n", "1"], ["property", "priority", "7"], ["body", "hi"]):
        assert row in rows


def test_ls_long_shows_the_content_and_the_body_on_demand(duebridge: Command) -> None:
    send_whole(duebridge)
    duebridge("send", "reminders", "--file", "/dev/null", "--delay", "2h", "--id", "b")
    header, row, bare = duebridge("ls", "reminders", "--long").out.splitlines()
    columns = ["key", "headers", "target", "priority", "size", "last", "error"]
    assert header.split()[6:] == columns
    assert row.split()[6:] == ["k", "n=1", "-", "7", "2", "-"]
    assert bare.split()[6:] == ["-", "-", "-", "-", "0", "-"]
    assert duebridge("ls", "reminders", "--body").out.splitlines()[1].split()[-2:] == ["hi", "-"]
    words = ("ls", "reminders", "--long", "--limit", "1", "--output", "json")
    shown, cursor = duebridge(*words).json_lines()
    assert shown == duebridge("get", "reminders", "a", "--output", "json").json()
    assert set(cursor) == {"cursor"}


def test_ls_long_shows_a_target_of_its_own(duebridge: Command) -> None:
    text = duebridge.file.read_text()
    allowed = "shards: 3, allow_targets: [{broker: here, topic: 'other-*'}]"
    duebridge.file.write_text(text.replace("shards: 3", allowed))
    line = b'{"body": "x", "delay": "1h", "target": {"broker": "here", "topic": "other-1"}}'
    assert duebridge("send", "invoices", "-", "--jsonl", stdin=line).code == 0
    assert "here:other-1" in duebridge("ls", "invoices", "--long").out


def test_ls_long_on_a_terminal_is_a_block_for_each_envelope(duebridge: Command) -> None:
    send_whole(duebridge)
    name = "order-4711:timeout:of-a-name-that-no-column-holds"
    duebridge("send", "reminders", "x" * 300, "--delay", "2h", "--id", name)
    code, out = duebridge.on_terminal(
        "ls", "reminders", "--long", "--body", COLUMNS="80", NO_COLOR="1"
    )
    assert code == 0
    first, second = (block.splitlines() for block in out.decode().replace("\r", "").split("\n\n"))
    assert max(map(len, first + second)) <= 80
    assert [first[0].split(), second[0].split()] == [["id", "a"], ["id", name]]
    assert ["header", "n", "1"] in [line.split() for line in first]
    assert "…" in "".join(second)


def test_ls_long_cuts_a_long_body_in_a_table_and_not_in_json(duebridge: Command) -> None:
    duebridge("send", "reminders", "x" * 300, *ONE_HOUR)
    assert f"{'x' * 79}… " in duebridge("ls", "reminders", "--body").out
    assert duebridge("ls", "reminders", "--body", "--output", "json").json()["body"] == "x" * 300


def test_deliver_now_moves_what_waits_and_exits_1_for_what_does_not(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", *ONE_HOUR)
    duebridge("send", "reminders", "x", "--delay", "0s", "--id", "gone")
    kill_due(duebridge, 1, "TooLarge\nbroke the limit")
    done = duebridge("deliver-now", "reminders", "a", DUEBRIDGE_ACTOR="ann")
    assert (done.code, done.out.split()[:3]) == (0, ["rescheduled", "a", "due"])
    known = duebridge("get", "reminders", "a", "--output", "json").json()
    assert known["due_at_ms"] <= time.time_ns() // 1_000_000 + 1
    event = duebridge("events", "reminders", "--limit", "1", "--output", "json").json()
    assert (event["kind"], event["id"], event["by"]) == ("rescheduled", "a", "ann")
    answers = duebridge("deliver-now", "reminders", "gone", "none", "--output", "json")
    assert answers.code == 1
    assert [each["status"] for each in answers.json_lines()] == ["dead", "unknown"]


def test_deliver_now_that_the_store_ends_shows_what_is_done(duebridge: Command) -> None:
    for name in ("a", "b", "c"):
        duebridge("send", "invoices", "hello", "--delay", "1h", "--id", name)
    with closing(duebridge.connection()) as connection:
        break_shard(connection, RouteStore(connection, "duebridge", "invoices", 3).of("b"))
    done = duebridge("deliver-now", "invoices", "a", "b", "c")
    assert (done.code, done.out.startswith("rescheduled  a  due")) == (3, True)
    assert len(done.out.splitlines()) == 1


def test_reschedule_pending_moves_its_due_instant(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", *ONE_HOUR)
    at_ms = (time.time_ns() // 1_000_000) + 7_200_000
    moved = duebridge("reschedule", "reminders", "a", "--at", str(at_ms), "--output", "json")
    assert moved.code == 0
    told = {"id": "a", "route": "reminders", "status": "rescheduled", "due_at_ms": at_ms}
    assert moved.json() == told
    known = duebridge("get", "reminders", "a", "--output", "json").json()
    assert known["due_at_ms"] == at_ms
    due = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="seconds")
    moved = duebridge("reschedule", "reminders", "a", "--at", due)
    assert due.removesuffix("+00:00") in moved.out


def test_cancel_pending_then_again_answers_cancelled_then_unknown(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", *ONE_HOUR)
    first = duebridge("cancel", "reminders", "a", "--output", "json")
    assert first.code == 0
    assert first.json() == {"id": "a", "route": "reminders", "status": "cancelled"}
    second = duebridge("cancel", "reminders", "a")
    assert (second.code, second.out.split()) == (1, ["unknown", "a"])


def test_cancel_and_reschedule_of_the_dead_exit_1(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", "--delay", "0s", "--id", "gone")
    kill_due(duebridge, 1, "TooLarge\nbroke the limit")
    assert duebridge("cancel", "reminders", "gone").code == 1
    moved = duebridge("reschedule", "reminders", "gone", "--delay", "1h", "--output", "json")
    assert (moved.code, moved.json()["status"]) == (1, "dead")
    shown = duebridge("get", "reminders", "gone")
    assert shown.code == 0
    assert "broke the limit" in shown.out


def test_cancel_of_many_takes_what_ls_and_events_print(duebridge: Command) -> None:
    for name in ("a b", 'c"d', "kept"):
        duebridge("send", "invoices", "hello", "--delay", "1h", "--id", name)
    listed = duebridge("ls", "invoices", "--limit", "2", "--output", "json")
    assert '{"cursor":' in listed.out
    named = [line for line in listed.out.splitlines() if '"id":"kept"' not in line]
    others = duebridge("events", "invoices", "--output", "json").out.splitlines()
    named += [line for line in others if '"kept"' not in line]
    done = duebridge("cancel", "invoices", "-", "--output", "json", stdin="\n".join(named).encode())
    answers = {(each["id"], each["status"]) for each in done.json_lines()}
    assert {("a b", "cancelled"), ('c"d', "cancelled")} <= answers
    assert duebridge("get", "invoices", "kept").code == 0
    assert done.code == 1  # each of the two was named twice


@pytest.mark.parametrize(
    ("lines", "code", "out", "err"),
    [
        ('{"id": "a", "route": "reminders"}\n\n', 0, "", "no line\n"),
        ('{"id": "a"}', 0, "cancelled  a\n", "1 cancelled\n"),
        ('{"id": "a"}\na\n', 1, "cancelled  a\n", "line 2: expected an object with an id, such as"),
    ],
    ids=["another route", "this route", "no line"],
)
def test_cancel_of_many_reads_lines_of_its_route(
    duebridge: Command, lines: str, code: int, out: str, err: str
) -> None:
    duebridge("send", "invoices", "hello", *ONE_HOUR)
    done = duebridge("cancel", "invoices", "-", stdin=lines.encode())
    assert (done.code, done.out) == (code, out)
    assert err in done.err


def test_cancel_of_many_ended_since_takes_only_what_ended_then_or_later(duebridge: Command) -> None:
    ended = ("delivered", "shunted", "cancelled", "dropped", "replaced")
    events = [(kind, kind, ENDED_MS) for kind in (*ended, "accepted", "retried")]
    events.append(("delivered", "early", ENDED_MS - 1))
    new = [json.dumps({"id": name, "body": "", "delay": "1h"}) for _, name, _ in events]
    duebridge("send", "invoices", "-", "--jsonl", stdin="\n".join(new).encode())
    lines = [
        json.dumps({"kind": kind, "at_ms": at_ms, "route": "invoices", "shard": 0, "id": name})
        for kind, name, at_ms in events
    ]
    words = ("cancel", "invoices", "-", "--ended-since", "2026-01-01T00:00:00Z")
    done = duebridge(*words, stdin="\n".join(lines).encode())
    assert (done.code, done.err) == (0, "5 cancelled\n")
    listed = duebridge("ls", "invoices", "--output", "json").json_lines()
    assert {each["id"] for each in listed} == {"accepted", "retried", "early"}


@pytest.mark.parametrize(
    ("kind", "at_ms", "route", "told"),
    [
        ("gap", ENDED_MS, "invoices", "line 1: a gap: 7 entries of shard 2 are missing"),
        ("gap", 0, "invoices", "line 1: a gap"),  # before the first entry that is there
        ("purged", ENDED_MS, "invoices", "line 1: the route was purged"),
        ("gap", ENDED_MS - 1, "invoices", ""),
        ("gap", ENDED_MS, "reminders", ""),
    ],
)
def test_cancel_of_many_ended_since_names_what_ended_without_an_id_and_cancels_the_others(
    duebridge: Command, kind: str, at_ms: int, route: str, told: str
) -> None:
    duebridge("send", "invoices", "hello", *ONE_HOUR)
    unnamed = {"kind": kind, "at_ms": at_ms, "route": route, "shard": 2, "lost_entries": 7}
    ended = {"kind": "cancelled", "at_ms": ENDED_MS, "route": "invoices", "shard": 0, "id": "a"}
    words = ("cancel", "invoices", "-", "--ended-since", "2026-01-01T00:00:00Z")
    done = duebridge(*words, stdin=f"{json.dumps(unnamed)}\n{json.dumps(ended)}".encode())
    *named, counts = done.err.splitlines()
    assert (done.code, done.out, counts) == (
        (1, "cancelled  a\n", "1 refused, 1 cancelled")
        if told
        else (0, "cancelled  a\n", "1 cancelled")
    )
    assert "".join(named).startswith(told)


def test_cancel_of_many_with_damaged_lines_names_them_and_cancels_the_others(
    duebridge: Command,
) -> None:
    new = [json.dumps({"id": name, "body": "", "delay": "1h"}) for name in ("a", "b", "c")]
    duebridge("send", "invoices", "-", "--jsonl", stdin="\n".join(new).encode())
    lines = [
        json.dumps({"kind": "delivered", "at_ms": ENDED_MS, "route": "invoices", "id": name})
        for name in ("a", "b", "c")
    ]
    lines[1:1] = [lines[0][:40], lines[0][:30] + lines[1], "5"]
    words = ("cancel", "invoices", "-", "--ended-since", "2026-01-01T00:00:00Z")
    done = duebridge(*words, stdin="\n".join(lines).encode())
    assert (done.code, done.out) == (1, "cancelled  a\ncancelled  b\ncancelled  c\n")
    *named, counts = done.err.splitlines()
    assert [each.partition(": expected an object with an id")[0] for each in named] == [
        "line 2", "line 3", "line 4",
    ]  # fmt: skip
    assert counts == "3 cancelled, 3 refused"
