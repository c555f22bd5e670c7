"""`send - --jsonl`: a bad line is named, none of the others is lost."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import PROGRAM, Command, wait_until

LINES = 10_000
BAD = 5_000


SEND = ("send", "reminders", "-", "--jsonl")


def line(envelope_id: str, **fields: object) -> bytes:
    given = {"body": "hello", "delay": "1d", "id": envelope_id, **fields}
    return json.dumps(given).encode() + b"\n"


def pending(duebridge: Command, route: str) -> int:
    routes = duebridge("stats", "--output", "json").json()["routes"]
    return int(next(each["pending"] for each in routes if each["route"] == route))


def test_send_jsonl_half_written_line_among_10000_loses_no_other(duebridge: Command) -> None:
    lines = [line(f"many-{number}") for number in range(1, LINES + 1)]
    lines[BAD - 1] = lines[BAD - 1][:25] + b"\n"
    words = ("send", "invoices", "-", "--jsonl", "--output", "json")
    sent = duebridge(*words, stdin=b"".join(lines))
    assert sent.code == 1
    assert sent.err.splitlines()[0].startswith(f"line {BAD}: expected an envelope")
    assert sent.err.splitlines()[1] == "9999 lines stored, 1 refused"
    expected = [f"many-{number}" if number != BAD else "" for number in range(1, LINES + 1)]
    assert [receipt["id"] for receipt in sent.json_lines()] == expected
    assert pending(duebridge, "invoices") == LINES - 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"body": "x", "delay": 5}', 'delay: expected a duration such as "15m"; got 5'),
        (b'{"body": {"a": 1}, "delay": "1h"}', "body: expected text"),
        (b'{"body": {"a": 1}, "delay": "1h"}', "use json"),
        (b'{"body": "x", "json": 1, "delay": "1h"}', "json; got body and json"),
        (b'{"delay": "1h"}', "one of body, body_base64, json; got none"),
        (b'{"body": {"base64": "?"}, "delay": "5s"}', "base64: expected"),
        (b'{"body": "x", "delay": "31d"}', "max_delay (30d)"),
        (b'{"body": "x", "delay": "5s", "headers": {"x-route": "y"}}', "x-route"),
        (line("before", body="other"), "conflict: id before"),
        (b"\xff\xfe", "expected an envelope as a JSON object"),
        (b'"' + b"x" * 17_000_000 + b'"', "at most 16777216 bytes"),
    ],
    ids=range(11),
)
def test_send_jsonl_bad_line_is_named_and_its_neighbours_go(
    duebridge: Command, text: bytes, why: str
) -> None:
    stdin = line("before") + b"\n" + text + b"\n" + line("after").rstrip()
    sent = duebridge(*SEND, "--output", "json", stdin=stdin)
    assert sent.code == 1
    assert sent.err.startswith("line 3: ")
    assert why in sent.err
    stored = [each["id"] for each in sent.json_lines() if each["status"] == "accepted"]
    assert stored == ["before", "after"]


def test_send_jsonl_in_json_answers_every_line_in_its_order(duebridge: Command) -> None:
    stdin = (
        line("first")
        + b"half a line\n"
        + line("late", delay="31d")
        + b'\n# no line\n{"body": "x"}\n'
        + line("last")
    )
    sent = duebridge(*SEND, "--output", "json", stdin=stdin)
    answers = [
        (each["id"], each["route"], each["status"], each.get("error", "").partition(": ")[0])
        for each in sent.json_lines()
    ]
    assert answers == [
        ("first", "reminders", "accepted", ""),
        ("", "reminders", "refused", "line 2"),
        ("late", "reminders", "refused", "line 3"),
        ("", "reminders", "refused", "line 6"),
        ("last", "reminders", "accepted", ""),
    ]
    assert [each.partition(":")[0] for each in sent.err.splitlines()] == [
        *(f"line {number}" for number in (2, 3, 6)),
        "2 lines stored, 3 refused",
    ]


def test_send_jsonl_after_a_byte_order_mark_sends_the_first_line(duebridge: Command) -> None:
    for first in (line("marked"), b"# a remark\n"):
        sent = duebridge(*SEND, stdin=b"\xef\xbb\xbf" + first + line("next"))
        assert (sent.code, sent.err) == (0, "")


def test_send_jsonl_every_form_of_a_field_is_accepted(duebridge: Command) -> None:
    stdin = (
        line("f1", body=None, key="k", headers={"a": 1, "b": None, "c": True, "d": "x"})
        + line("f2", body={"base64": "AAE="}, headers=[["a", {"base64": "AA=="}], ["a", "y"]])
        + line("f3", delay=None, at="2026-01-31T09:00:00+01:00", expires="2126-01-31T09:00:00Z")
        + line("f4", delay=None, at=1_767_225_600_000, remember="1h", max_attempts=2)
    )
    sent = duebridge(*SEND, stdin=stdin)
    assert (sent.code, sent.err) == (0, "")
    assert len(sent.out.splitlines()) == 4


def test_send_jsonl_of_a_json_value_sends_that(duebridge: Command) -> None:
    sent = duebridge(*SEND, stdin=b'{"json": {"a": [1, null]}, "delay": "1h", "id": "value"}')
    assert sent.out.startswith("accepted")
    options = ("--delay", "1h", "--id", "value", "--content-type", "application/json")
    same = duebridge("send", "reminders", '{"a": [1, null]}', *options)
    assert same.out.startswith("duplicate")


def test_send_jsonl_closed_output_still_sends_every_line(duebridge: Command) -> None:
    process = duebridge.start(*SEND)
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(line("heard"))
    process.stdin.flush()
    assert process.stdout.readline().startswith(b"accepted")
    process.stdout.close()
    process.stdin.write(b"".join(line(f"unheard-{number}") for number in range(2_000)))
    process.stdin.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0
    assert pending(duebridge, "reminders") == 2_001
    process.stderr.close()


def test_send_jsonl_interrupted_exits_130_and_says_where(duebridge: Command) -> None:
    process = duebridge.start(*SEND)
    assert process.stdin
    assert process.stdout
    process.stdin.write(line("in-time"))
    process.stdin.flush()
    assert process.stdout.readline().startswith(b"accepted")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert err.startswith(b"duebridge: interrupted; ")
    assert b"lines before 2 are done" in err
    assert len(err.splitlines()) == 1
    wait_until(lambda: duebridge("get", "reminders", "in-time").code == 0, "the sent envelope")


def test_send_jsonl_rejects_can_be_mended_and_sent_again(
    duebridge: Command, tmp_path: Path
) -> None:
    rejects = tmp_path / "refused.jsonl"
    lines = [line(f"r-{number}") for number in range(4)]
    lines[1] = b'{"body": "x", "delay": 5, "id": "r-1"}\n'
    lines[2] = lines[2][:20] + b"\xff\n"
    words = (*SEND, "--rejects", str(rejects))
    sent = duebridge(*words, stdin=b"# a remark\n\n" + b"".join(lines))
    assert sent.code == 1
    assert [each.split()[-1] for each in sent.out.splitlines()] == ["r-0", "r-3"]
    kept = rejects.read_bytes().splitlines()
    assert kept[0].startswith(b"# line 4: delay: expected")
    assert kept[2].startswith(b"# line 5: expected an envelope as a JSON object")
    assert [kept[1] + b"\n", kept[3] + b"\n"] == lines[1:3]
    mended = rejects.read_bytes().replace(b": 5,", b': "5h",').replace(lines[2], line("r-2"))
    again = duebridge(*words, stdin=mended)
    assert (again.code, again.err) == (0, "")
    assert [each.split()[-1] for each in again.out.splitlines()] == ["r-1", "r-2"]
    assert rejects.read_bytes() == b""


def test_send_jsonl_rejects_into_its_input_is_refused_and_empties_nothing(
    duebridge: Command,
) -> None:
    lines, other_name = duebridge.home / "lines.jsonl", duebridge.home / "link.jsonl"
    lines.write_bytes(line("kept"))
    other_name.symlink_to(lines)
    for rejects in (lines, other_name):
        with lines.open("rb") as stdin:
            words = [PROGRAM, *SEND, "--rejects", str(rejects)]
            done = subprocess.run(words, cwd=duebridge.home, stdin=stdin, stderr=subprocess.PIPE)
        assert (done.returncode, lines.read_bytes()) == (2, line("kept"))
        assert done.stderr.startswith(b"duebridge: --rejects: expected another file")


def test_send_jsonl_of_30000_lines_stays_in_bounded_memory(duebridge: Command) -> None:
    """The peak is that of a process that sends few lines, and some MiB."""
    few, many = peak_kib(duebridge, "reminders", 1_000), peak_kib(duebridge, "invoices", 30_000)
    assert many - few < 8 * 1024
    assert pending(duebridge, "invoices") == 30_000


def peak_kib(duebridge: Command, route: str, count: int) -> int:
    """Return the resident memory, at its most, of a command that sends so many lines."""
    lines = duebridge.home / "lines.jsonl"
    with lines.open("w") as file:
        for number in range(count):
            file.write(f'{{"body": "hello", "delay": "1d", "id": "{number}"}}\n')
    program = (
        "import resource, subprocess, sys;"
        " code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode;"
        " print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    words = [PROGRAM, "send", route, "-", "--jsonl"]
    with lines.open("rb") as stdin:
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=duebridge.home, stdin=stdin, capture_output=True, timeout=110, check=True,
        )  # fmt: skip
    code, kib = done.stdout.split()
    assert (int(code), done.stderr) == (0, b"")
    return int(kib)


def test_send_jsonl_shows_its_progress_on_a_terminal_and_bad_lines_above(
    duebridge: Command, tmp_path: Path
) -> None:
    (duebridge.home / "some.jsonl").write_bytes(line("p-1") + b"{\n" + line("p-2"))
    shell = f"'{PROGRAM}' send reminders - --jsonl < some.jsonl"
    shown = in_shell_on_terminal(duebridge, f"{shell} > results")
    assert b"lines sent" in shown
    assert b"line 2: expected an envelope" in shown
    assert (duebridge.home / "results").read_bytes().count(b"accepted") == 2
    assert b"lines sent" not in in_shell_on_terminal(duebridge, shell)


def in_shell_on_terminal(duebridge: Command, shell: str) -> bytes:
    program = "import pty, sys; pty.spawn(['sh', '-c', sys.argv[1]])"
    return subprocess.run(
        [sys.executable, "-c", program, shell],
        cwd=duebridge.home, stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
    ).stdout  # fmt: skip
