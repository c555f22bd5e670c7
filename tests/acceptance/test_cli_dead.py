"""`duebridge dead show|replay|drop`: what is meant, what is said first, what becomes of it."""

import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from duebridge.admin.dead import list_dead
from duebridge.admin.operator import Operator
from duebridge.config.load import load_config
from duebridge.envelope import Envelope
from duebridge.ports.publisher import Reason
from duebridge.producer import Producer
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.transitions import Burial
from tests.support.command import PROGRAM, Command, hear_ctrl_c

LARGE, MISSING = Reason.TOO_LARGE, Reason.TARGET_MISSING


def bury(duebridge: Command, reasons: dict[str, Reason], **fields: Any) -> None:
    """See to it that these are dead in `reminders`, for these reasons."""
    given = {"body": b"hello", **fields}
    body = given.pop("body")
    connection = duebridge.connection()
    Producer(load_config(duebridge.file), connection).schedule_many(
        "reminders", [Envelope.new(body, delay="0s", id=name, **given) for name in reasons]
    )
    store = DelayStore(connection, Shard("duebridge", "reminders", 0))
    while store.next().pending + store.next().ready:
        store.promote()
        claim = store.claim(1000, 30_000)
        burials = [
            Burial(
                id=each,
                reason=reasons[each],
                is_failure=True,
                is_unsure=False,
                error=f"{reasons[each].name.title()}\nWhy not",
            )
            for each in claim.ids
        ]
        store.bury(claim.token, burials)
    connection.close()


def left(duebridge: Command) -> list[str]:
    """Return the ids that are still dead."""
    connection = duebridge.connection()
    found = [
        each.entry.id
        for each in list_dead(Operator(load_config(duebridge.file), connection), "reminders")
    ]
    connection.close()
    return found


def test_show_has_everything_and_the_body_only_on_demand(duebridge: Command) -> None:
    bury(
        duebridge, {"a": LARGE}, key=b"k", headers=[("n", 1), ("b", b"\xff")],
        expires="1h", max_attempts=3, content_type="text/plain",
    )  # fmt: skip
    shown = duebridge("dead", "show", "reminders", "a", "--output", "json").json()
    assert (shown["reason"], shown["error_class"], shown["error_message"]) == (
        "too_large", "Too_Large", "Why not",
    )  # fmt: skip
    assert (shown["attempt"], shown["failures"], shown["max_attempts"]) == (1, 1, 3)
    assert (shown["key"], shown["headers"]) == ("k", [["n", 1], ["b", {"base64": "/w=="}]])
    assert shown["properties"] == {"content_type": "text/plain"}
    assert shown["body_size_bytes"] == 5
    assert 0 < shown["first_failed_at_ms"] <= shown["last_failed_at_ms"] < shown["expires_at_ms"]
    assert "body" not in shown
    whole = duebridge("dead", "show", "reminders", "a", "--body", "--output", "json").json()
    assert whole == {**shown, "body": "hello"}


def test_show_as_a_table_escapes_what_would_drive_a_terminal(duebridge: Command) -> None:
    bury(duebridge, {"a": LARGE}, body=b"\x1b[31m\n", headers={"h": "\x1b"})
    table = duebridge("dead", "show", "reminders", "a", "--body")
    assert (table.code, table.err) == (0, "")
    rows = dict(line.split(maxsplit=1) for line in table.out.splitlines() if line)
    assert rows["body"] == "\\x1b[31m\\n"
    assert rows["reason"] == "too_large"
    assert "header h" in table.out
    assert "\x1b" not in table.out
    assert "body " not in duebridge("dead", "show", "reminders", "a").out


def test_show_of_one_that_is_not_dead_exits_1_and_says_what_it_is(duebridge: Command) -> None:
    duebridge("send", "reminders", "x", "--delay", "1h", "--id", "alive")
    for name, why in (("alive", "it is pending"), ("nobody", "the store knows none")):
        shown = duebridge("dead", "show", "reminders", name)
        assert (shown.code, shown.out) == (1, "")
        assert why in shown.err


def test_replay_of_ids_answers_each_and_exits_1_for_an_unknown_one(duebridge: Command) -> None:
    bury(duebridge, {"a": LARGE, "b": LARGE})
    done = duebridge("dead", "replay", "reminders", "a", "nobody", "--delay", "1h")
    assert done.code == 1
    assert [line.split() for line in done.out.splitlines()] == [
        ["replayed", "a"], ["unknown", "nobody"],
    ]  # fmt: skip
    known = duebridge("get", "reminders", "a", "--output", "json").json()
    assert (known["state"], known["attempt"], known["failures"]) == ("pending", 1, 0)
    assert left(duebridge) == ["b"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--reason", "target_missing"], {"c", "d"}),
        (["--reason", "target_missing", "--reason", "too_large"], {"a", "b", "c", "d"}),
        (["--error-class", "Too_Large"], {"a", "b"}),
        (["--error-class", "Too"], set()),
        (["--error", "too"], {"a", "b"}),
        (["--error", "WHY NOT"], {"a", "b", "c", "d"}),
        (["--after", "1h"], {"a", "b", "c", "d"}),
        (["--before", "1h"], set()),
        (["--before", "2126-01-31T09:00:00Z", "--error", "missing"], {"c", "d"}),
    ],
)
def test_filter_means_those_that_meet_every_condition(
    duebridge: Command, words: list[str], meant: set[str]
) -> None:
    bury(duebridge, {"a": LARGE, "b": LARGE, "c": MISSING, "d": MISSING})
    dry = duebridge("dead", "drop", "reminders", *words, "--dry-run", "--output", "json")
    assert dry.code == 0
    assert (dry.json()["matched"], set(dry.json()["first"])) == (len(meant), meant)
    assert len(left(duebridge)) == 4


def test_dry_run_says_how_many_and_the_first_ten(duebridge: Command) -> None:
    bury(duebridge, {f"id-{number:02d}": LARGE for number in range(25)})
    dry = duebridge("dead", "replay", "reminders", "--all", "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert dry.out.splitlines()[0] == "would replay 25 of route reminders; the first:"
    assert len(dry.out.splitlines()) == 11
    ids = duebridge("dead", "drop", "reminders", "id-01", "nobody", "--dry-run")
    assert ids.out == "would drop 1 of route reminders; the first:\n  id-01\n"


def test_drop_by_filter_among_many_pages_drops_those_and_no_other(duebridge: Command) -> None:
    reasons = {f"id-{n:04d}": LARGE if n % 2 else MISSING for n in range(1_000)}
    bury(duebridge, reasons)
    connection = duebridge.connection()
    connection.client.config_resetstat()
    done = duebridge("dead", "drop", "reminders", "--reason", "too_large", "--output", "json")
    calls = connection.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    connection.close()
    assert done.code == 0
    assert done.err == "500 dropped\n"
    assert {each["status"] for each in done.json_lines()} == {"dropped"}
    assert left(duebridge) == [name for name, reason in reasons.items() if reason is MISSING]
    assert calls < 30, "a page that is settled must not send the walk back to its beginning"


def test_ls_of_the_dead_pages_by_cursor(duebridge: Command) -> None:
    bury(duebridge, {f"id-{number}": LARGE if number < 7 else MISSING for number in range(12)})
    words = ("dead", "ls", "reminders", "--reason", "too_large", "--limit", "4")
    first = duebridge(*words, "--output", "json").json_lines()
    cursor = first.pop()["cursor"]
    rest = duebridge(*words, "--output", "json", "--cursor", cursor).json_lines()
    assert [each["id"] for each in first + rest] == [f"id-{number}" for number in range(7)]


def test_replay_at_a_rate_is_no_faster(duebridge: Command) -> None:
    bury(duebridge, {f"id-{number}": LARGE for number in range(20)})
    done = duebridge("dead", "replay", "reminders", "--all", "--rate", "20/s", "--delay", "1h")
    assert (done.code, done.err) == (0, "20 replayed\n")
    events = duebridge("events", "reminders", "--output", "json").json_lines()
    at_ms = [each["at_ms"] for each in events if each["kind"] == "replayed"]
    assert len(at_ms) == 20
    assert max(at_ms) - min(at_ms) >= 800


@pytest.mark.parametrize(
    ("answer", "code", "count"),
    [(b"n\n", 1, 3), (b"\n", 1, 3), (b"y\n", 0, 0), (b"\x04", 130, 3), (signal.SIGINT, 130, 3)],
    ids=["no", "nothing", "yes", "end", "ctrl-c"],
)
def test_drop_by_filter_on_a_terminal_asks_first(
    duebridge: Command, answer: bytes | signal.Signals, code: int, count: int
) -> None:
    bury(duebridge, {f"id-{number}": LARGE for number in range(3)})
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "dead", "drop", "reminders", "--all"],
        cwd=duebridge.home, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs,
        preexec_fn=hear_ctrl_c,
    )  # fmt: skip
    asked = b""
    while b"drop 3 of route reminders? [y/N]" not in asked:
        asked += os.read(ours, 1000)
    if isinstance(answer, bytes):
        os.write(ours, answer)
    else:
        process.send_signal(answer)
    process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert (process.returncode, len(left(duebridge))) == (code, count)


def test_drop_by_filter_with_yes_or_of_ids_does_not_ask(duebridge: Command) -> None:
    bury(duebridge, {f"id-{number}": LARGE for number in range(3)})
    _, out = duebridge.on_terminal("dead", "drop", "reminders", "id-0")
    assert b"?" not in out
    _, out = duebridge.on_terminal("dead", "drop", "reminders", "--all", "--yes")
    assert b"?" not in out
    assert left(duebridge) == []


def test_replay_shows_its_progress_on_a_terminal_and_nowhere_else(
    duebridge: Command, tmp_path: Path
) -> None:
    bury(duebridge, {f"id-{number}": LARGE for number in range(300)})
    code, err = duebridge.on_terminal(
        "dead", "replay", "reminders", "--all", "--yes", "--delay", "1h",
        results=tmp_path / "results",
    )  # fmt: skip
    assert code == 0
    assert b"settled" in err
    assert b"300 replayed" in err
    assert len((tmp_path / "results").read_text().splitlines()) == 300


def test_replay_interrupted_exits_130_and_says_what_is_done(duebridge: Command) -> None:
    bury(duebridge, {f"id-{number}": LARGE for number in range(50)})
    process = duebridge.start(
        "dead", "replay", "reminders", "--all", "--rate", "1/s", "--delay", "1h"
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"replayed")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    done = 1 + len(out.splitlines())
    assert process.returncode == 130
    assert err.decode() == f"duebridge: interrupted; before that: {done} replayed\n"
    assert len(left(duebridge)) == 50 - done


def test_drop_whose_reader_left_still_drops_all(duebridge: Command) -> None:
    bury(duebridge, {f"id-{number}": LARGE for number in range(500)})
    process = duebridge.start("dead", "drop", "reminders", "--all")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"dropped")
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    process.communicate()
    assert left(duebridge) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "expected ids, a filter such as --reason, or --all; got nothing"),
        (["a", "--all"], "got ids and --all"),
        (["a", "--reason", "expired"], "got ids and a filter"),
        (["--reason", "bored"], "reason: expected one of attempts_exhausted"),
        (["--all", "--rate", "5"], "--rate: expected a whole number a second, such as 50/s"),
        (["--before", "soon"], "--before: expected RFC 3339"),
        (["--after", "-1h"], "--after: expected a duration"),
    ],
)
def test_drop_of_what_is_not_exits_2(duebridge: Command, words: list[str], expected: str) -> None:
    refused = duebridge("dead", "drop", "reminders", *words)
    assert (refused.code, refused.out) == (2, "")
    assert expected in refused.err
    assert len(refused.err.splitlines()) == 1
