"""send, cancel, reschedule and get: one envelope from a terminal."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex

import pytest

from tests.support.command import Command, embedded_command

LONG = "x" * 256
RECEIPT = {"id", "route", "due_at_ms", "status"}
KNOWN = {
    "id", "route", "state", "due_at_ms", "scheduled_at_ms", "expires_at_ms", "attempt", "failures",
    "expiries", "reason", "error_class", "error_message", "first_failed_at_ms", "last_failed_at_ms",
}  # fmt: skip


@pytest.fixture(scope="module")
def duebridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with embedded_command(tmp_path_factory.mktemp("cli")) as command:
        text = command.file.read_text()
        command.file.write_text(text.replace("max_delay: 30d", "max_delay: 30d, max_body: 1KiB"))
        yield command


@pytest.fixture
def new_id() -> str:
    return f"id-{token_hex(6)}"


def test_send_with_delay_prints_receipt_as_json(duebridge: Command, new_id: str) -> None:
    before_ms = time.time_ns() // 1_000_000
    sent = duebridge(
        "send", "reminders", "hello", "--delay", "15m", "--id", new_id, "--output", "json"
    )
    assert (sent.code, sent.err) == (0, "")
    receipt = sent.json()
    assert set(receipt) == RECEIPT
    assert (receipt["id"], receipt["route"], receipt["status"]) == (new_id, "reminders", "accepted")
    assert before_ms + 900_000 <= receipt["due_at_ms"] <= before_ms + 900_000 + 60_000


def test_send_without_id_prints_a_line_that_get_finds(duebridge: Command) -> None:
    sent = duebridge("send", "reminders", "hello", "--delay", "1h")
    status, due, envelope_id = sent.out.split()
    assert (sent.code, status) == (0, "accepted")
    known = duebridge("get", "reminders", "--", envelope_id)  # it may begin with a dash
    assert known.code == 0
    assert due in known.out


@pytest.mark.parametrize("form", ["{}Z", "{}+00:00", "epoch"])
def test_send_with_at_is_due_at_that_instant(duebridge: Command, new_id: str, form: str) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    due_ms = int(due.timestamp()) * 1000
    at = str(due_ms) if form == "epoch" else form.format(due.replace(tzinfo=None).isoformat())
    sent = duebridge("send", "reminders", "hello", "--at", at, "--id", new_id, "--output", "json")
    assert sent.json()["due_at_ms"] == due_ms


def test_send_other_content_conflicts_and_exits_1(duebridge: Command, new_id: str) -> None:
    words = ("--delay", "1h", "--id", new_id, "--output", "json")
    duebridge("send", "reminders", "one", *words)
    refused = duebridge("send", "reminders", "two", *words)
    assert (refused.code, refused.json()["status"]) == (1, "conflict")
    replaced = duebridge("send", "reminders", "two", *words, "--on-conflict", "replace")
    assert (replaced.code, replaced.json()["status"]) == (0, "replaced")


def test_send_from_file_and_standard_input_is_the_same_body(
    duebridge: Command, new_id: str
) -> None:
    body = bytes(range(256))
    (duebridge.home / "body.bin").write_bytes(body)
    words = ("--delay", "1h", "--id", new_id, "--output", "json")
    assert duebridge("send", "reminders", "--file", "body.bin", *words).code == 0
    again = duebridge("send", "reminders", "-", *words, stdin=body)
    assert again.json()["status"] == "duplicate"


def test_send_with_every_field_is_the_same_as_its_json_line(
    duebridge: Command, new_id: str
) -> None:
    options = ("--key", "k", "--header", "a=1", "--header", "b=x=y", "--content-type", "text/plain")
    more = ("--expires", "2h", "--max-attempts", "3", "--delay", "1h", "--id", new_id)
    assert duebridge("send", "reminders", "hi", *options, *more).code == 0
    line = (
        f'{{"body": {{"base64": "aGk="}}, "key": "k", "headers": [["a", "1"], ["b", "x=y"]],'
        f' "content_type": "text/plain", "expires": "2h", "max_attempts": 3, "delay": "1h",'
        f' "id": "{new_id}"}}'
    )
    again = duebridge("send", "reminders", "-", "--jsonl", "--output", "json", stdin=line.encode())
    assert again.json()["status"] == "duplicate"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["send", "reminders", "--delay", "5s"], "body: expected exactly one of BODY and --file"),
        (["send", "reminders", "x", "--delay", "1s", "--header", "a"], "expected NAME=VALUE"),
        (["send", "reminders", "--file", "none.bin", "--delay", "1s"], "none.bin"),
        (["send", "reminders", "x", "--dely", "1s"], "No such option: --dely"),
        (["send", "reminders", "x", "--jsonl"], "--jsonl: expected -"),
        (["send", "reminders", "-", "--jsonl", "--key", "k"], "expected each line to say its own"),
        (["send", "reminders", "x", "--delay", "1s", "--id", ""], "id: expected 1 to 255 bytes"),
        (["cancel", "invoices", "x", "--ended-since", "1767225600000"], "expected - as the id"),
        (["reschedule", "reminders", "x"], "expected exactly one of the two; got neither"),
        (["get", "reminders"], "duebridge get --help"),
        (["stats", "--output", "xml"], "xml"),
        (["frobnicate"], "No such command 'frobnicate'"),
        ([], "Missing command"),
    ],
)  # fmt: skip
def test_usage_mistake_exits_2_with_one_line(
    duebridge: Command, words: list[str], expected: str
) -> None:
    refused = duebridge(*words)
    assert (refused.code, refused.out) == (2, "")
    assert expected in refused.err
    assert len(refused.err.splitlines()) == 1
    assert refused.err.startswith(("duebridge: ", "route: "))


def test_get_known_id_has_the_fields_of_the_python_api(duebridge: Command, new_id: str) -> None:
    duebridge("send", "invoices", "hello", "--delay", "1h", "--id", new_id)
    known = duebridge("get", "invoices", new_id, "--output", "json")
    assert known.code == 0
    assert set(known.json()) == KNOWN
    assert known.json()["state"] == "pending"


@pytest.mark.parametrize("output", ["table", "json"])
def test_get_unknown_id_exits_1_with_one_line(duebridge: Command, output: str) -> None:
    unknown = duebridge("get", "reminders", "no\x1b[31msuch", "--output", output)
    assert (unknown.code, unknown.out) == (1, "")
    assert "\x1b" not in unknown.err
    assert len(unknown.err.splitlines()) == 1


def test_cancel_pending_then_again_answers_cancelled_then_unknown(
    duebridge: Command, new_id: str
) -> None:
    duebridge("send", "reminders", "hello", "--delay", "1h", "--id", new_id)
    first = duebridge("cancel", "reminders", new_id, "--output", "json")
    assert first.code == 0
    assert first.json() == {"id": new_id, "route": "reminders", "status": "cancelled"}
    second = duebridge("cancel", "reminders", new_id)
    assert (second.code, second.out.split()) == (1, ["unknown", new_id])


def test_reschedule_pending_moves_its_due_instant(duebridge: Command, new_id: str) -> None:
    duebridge("send", "reminders", "hello", "--delay", "1h", "--id", new_id)
    at_ms = (time.time_ns() // 1_000_000) + 7_200_000
    moved = duebridge("reschedule", "reminders", new_id, "--at", str(at_ms), "--output", "json")
    assert moved.code == 0
    assert moved.json() == {
        "id": new_id, "route": "reminders", "status": "rescheduled", "due_at_ms": at_ms,
    }  # fmt: skip
    known = duebridge("get", "reminders", new_id, "--output", "json").json()
    assert known["due_at_ms"] == at_ms


def test_config_given_after_the_command_wins(duebridge: Command, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(duebridge.file.read_text())
    assert duebridge("--config", "none.yaml", "stats", "--config", str(other)).code == 0
    assert duebridge("--config", str(other), "stats").code == 0
    missing = duebridge("--config", "none.yaml", "stats")
    assert (missing.code, missing.out) == (2, "")
    assert missing.err.startswith("none.yaml: cannot be read")


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


def test_cancel_of_many_passes_over_lines_of_other_routes(duebridge: Command, new_id: str) -> None:
    duebridge("send", "invoices", "hello", "--delay", "1h", "--id", new_id)
    line = f'{{"id": "{new_id}", "route": "reminders"}}\n'
    done = duebridge("cancel", "invoices", "-", stdin=f"{line}\n".encode())
    assert (done.code, done.out, done.err) == (0, "", "no line\n")
    done = duebridge("cancel", "invoices", "-", stdin=f'{{"id": "{new_id}"}}'.encode())
    assert (done.code, done.out) == (0, f"cancelled  {new_id}\n")
    assert done.err == "1 cancelled\n"


def test_cancel_of_many_ended_since_takes_only_what_ended_then_or_later(
    duebridge: Command, new_id: str
) -> None:
    kinds = ("accepted", "delivered", "shunted", "cancelled", "dropped", "replaced", "retried")
    ids = {kind: f"{new_id}-{kind}" for kind in (*kinds, "early")}
    new = [f'{{"id": "{each}", "body": "", "delay": "1h"}}\n' for each in ids.values()]
    duebridge("send", "invoices", "-", "--jsonl", stdin="".join(new).encode())
    events = [(kind, ids[kind], 1_767_225_600_000) for kind in kinds]
    events.append(("delivered", ids["early"], 1_767_225_599_999))
    lines = [
        f'{{"kind":"{kind}","at_ms":{at},"route":"invoices","shard":0,"id":"{each}"}}\n'
        for kind, each, at in events
    ]
    words = ("cancel", "invoices", "-", "--ended-since", "2026-01-01T00:00:00Z")
    done = duebridge(*words, stdin="".join(lines).encode())
    assert (done.code, done.err) == (0, "5 cancelled\n")
    listed = duebridge("ls", "invoices", "--limit", "1000", "--output", "json").json_lines()
    left = {each["id"] for each in listed} & set(ids.values())
    assert left == {ids["accepted"], ids["retried"], ids["early"]}


def test_cancel_of_many_names_a_line_that_is_none_and_exits_2(
    duebridge: Command, new_id: str
) -> None:
    duebridge("send", "invoices", "hello", "--delay", "1h", "--id", new_id)
    lines = f'{{"id": "{new_id}"}}\n{new_id}\n'
    done = duebridge("cancel", "invoices", "-", stdin=lines.encode())
    assert (done.code, done.out) == (2, f"cancelled  {new_id}\n")
    assert 'line 2: expected an object with an id, such as {"id": "order-42"}' in done.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("x --delay 1h --at 2126-01-31T09:00:00Z", "exactly one of the two; got both"),
        ("x", "exactly one of the two; got neither"),
        ("x --delay 5", "delay: expected a duration such as"),
        ("x --delay 31d", "due: expected within max_delay (30d) of now"),
        ("x --at 2026-01-31T09:00:00", "--at: expected RFC 3339 with an offset"),
        ("x --at 1893456000", "--at: expected"),
        ("x --delay 2h --expires 1h", "expires: expected an instant after the envelope is due"),
        ("x" * 1_025 + " --delay 1h", "body: expected at most 1024 bytes; got 1025"),
        (f"x --delay 1h --id {LONG}", "id: expected 1 to 255 bytes of UTF-8; got 256"),
        ("x --delay 1h --header x-route=1", "header 'x-route': expected a name that duebridge"),
        ("x --delay 1h --max-attempts 0", "max_attempts: expected a whole number, 1 to 10000"),
    ],
)
def test_send_of_a_bad_envelope_exits_2_and_stores_nothing(
    duebridge: Command, words: str, expected: str
) -> None:
    refused = duebridge("send", "reminders", *words.split())
    assert (refused.code, refused.out) == (2, "")
    assert expected in refused.err
    assert len(refused.err.splitlines()) == 1


@pytest.mark.parametrize("command", ["send", "cancel", "reschedule", "get", "ls", "dead ls"])
def test_unknown_route_exits_2_and_names_those_there_are(duebridge: Command, command: str) -> None:
    rest = {"send": "x --delay 1h", "reschedule": "x --delay 1h", "ls": "", "dead ls": ""}
    words = f"{command} reminder {rest.get(command, 'x')}"
    refused = duebridge(*words.split())
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("route: expected one of the configuration")
    assert "(invoices, reminders); got 'reminder'" in refused.err
