"""`duebridge dead ls|show|replay|drop` and the operator behind it: what is meant and done."""

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from duebridge.admin.dead import list_dead
from duebridge.admin.operator import DeadSettlement, Operator
from duebridge.config.load import load_config
from duebridge.envelope import Envelope
from duebridge.errors import ConfigError
from duebridge.producer import Producer
from duebridge.store.routing import RouteStore
from duebridge.store.wire.transitions import Postponement
from tests.acceptance.cli.envelopes.dead_envelopes import bury, dead, ids_to
from tests.support.command import PROGRAM, Command, hear_ctrl_c, kill_due, wait_until


def test_operator_lists_the_dead_of_three_shards_once(
    duebridge: Command, operator: Operator
) -> None:
    ids = ids_to(500)
    bury(duebridge, ids, "invoices")
    assert sorted(dead(operator, "invoices")) == ids


def test_operator_replays_more_than_a_batch_and_answers_each_id_in_order(
    duebridge: Command, operator: Operator
) -> None:
    ids = ids_to(4_000)
    bury(duebridge, ids, "invoices")
    settled = operator.replay("invoices", ["no-such", *ids, ids[0]])
    assert settled[0] == DeadSettlement("no-such", "invoices", "unknown")
    assert settled[1:] == [DeadSettlement(each, "invoices", "replayed") for each in ids]
    _, invoices = operator.stats()
    assert (invoices.pending, invoices.dead) == (4_000, 0)


def test_operator_lists_the_dead_of_a_route_that_left_the_configuration(duebridge: Command) -> None:
    bury(duebridge, ["a"], "invoices")
    duebridge.file.write_text(duebridge.file.read_text().replace("  invoices:", "  # invoices:"))
    with closing(duebridge.connection()) as connection:
        later = Operator(load_config(duebridge.file), connection)
        assert dead(later, "invoices") == ["a"]
        with pytest.raises(ConfigError, match="got 'nothing'"):
            list_dead(later, "nothing")


def test_ls_shows_why_each_is_dead_and_escapes_what_would_drive_a_terminal(
    duebridge: Command,
) -> None:
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


def test_ls_pages_by_cursor(duebridge: Command) -> None:
    bury(duebridge, [*ids_to(7), *(f"m{name}" for name in ids_to(5))])
    words = ("dead", "ls", "reminders", "--reason", "too_large", "--limit", "4")
    first = duebridge(*words, "--output", "json").json_lines()
    cursor = first.pop()["cursor"]
    rest = duebridge(*words, "--output", "json", "--cursor", cursor).json_lines()
    assert [each["id"] for each in first + rest] == ids_to(7)


def test_ls_into_head_is_quiet(duebridge: Command) -> None:
    bury(duebridge, ids_to(3_000))
    shell = f"'{PROGRAM}' dead ls reminders --limit 3000 --output json | head -1"
    words = ["bash", "-o", "pipefail", "-c", shell]
    done = subprocess.run(words, cwd=duebridge.home, capture_output=True)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, b"", 1)


def test_show_has_everything_and_the_body_only_on_demand(duebridge: Command) -> None:
    bury(
        duebridge, ["a"], key=b"k", headers=[("n", 1), ("b", b"\xff")],
        expires="1h", max_attempts=3, content_type="text/plain",
    )  # fmt: skip
    shown = duebridge("dead", "show", "reminders", "a", "--output", "json").json()
    why = (shown["reason"], shown["error_class"], shown["error_message"])
    assert why == ("too_large", "Too_Large", "Why not")
    assert (shown["attempt"], shown["failures"], shown["max_attempts"]) == (1, 1, 3)
    assert (shown["key"], shown["headers"]) == ("k", [["n", 1], ["b", {"base64": "/w=="}]])
    assert shown["properties"] == {"content_type": "text/plain"}
    assert shown["body_size_bytes"] == 5
    assert 0 < shown["first_failed_at_ms"] <= shown["last_failed_at_ms"] < shown["expires_at_ms"]
    assert "body" not in shown
    whole = duebridge("dead", "show", "reminders", "a", "--body", "--output", "json").json()
    assert whole == {**shown, "body": "hello"}


def test_show_as_a_table_escapes_what_would_drive_a_terminal(duebridge: Command) -> None:
    bury(duebridge, ["a"], body=b"\x1b[31m\n", headers={"h": "\x1b"})
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


def test_replay_of_ids_answers_each_and_exits_1_for_one_that_is_not_dead(
    duebridge: Command, operator: Operator
) -> None:
    bury(duebridge, ["a", "b"])
    duebridge("send", "reminders", "x", "--delay", "1h", "--id", "alive")
    done = duebridge("dead", "replay", "reminders", "a", "nobody", "alive", "--delay", "1h")
    assert done.code == 1
    answers = [line.split() for line in done.out.splitlines()]
    assert answers == [["replayed", "a"], ["unknown", "nobody"], ["unknown", "alive"]]
    assert "duebridge: 'alive' is pending, not dead\n" in done.err
    known = duebridge("get", "reminders", "a", "--output", "json").json()
    assert (known["state"], known["attempt"], known["failures"]) == ("pending", 1, 0)
    assert dead(operator) == ["b"]


def test_dead_commands_are_journalled_with_who_ran_them(duebridge: Command) -> None:
    bury(duebridge, ["a", "b"])
    duebridge("dead", "replay", "reminders", "a", "--delay", "1h", DUEBRIDGE_ACTOR="ann")
    duebridge("dead", "drop", "reminders", "b", DUEBRIDGE_ACTOR="bob")
    events = duebridge("events", "reminders", "--output", "json").json_lines()
    named = [(each["kind"], each["id"], each["by"]) for each in events if "by" in each]
    assert named == [("replayed", "a", "ann"), ("dropped", "b", "bob")]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--reason", "target_missing"], {"m1", "m2"}),
        (["--reason", "target_missing", "--reason", "too_large"], {"a", "b", "m1", "m2"}),
        (["--error-class", "Too_Large"], {"a", "b"}),
        (["--error-class", "Too"], set()),
        (["--error", "too"], {"a", "b"}),
        (["--error", "WHY NOT"], {"a", "b", "m1", "m2"}),
        (["--after", "1h"], {"a", "b", "m1", "m2"}),
        (["--before", "1h"], set()),
        (["--before", "2126-01-31T09:00:00Z", "--error", "missing"], {"m1", "m2"}),
    ],
)
def test_filter_means_those_that_meet_every_condition(
    duebridge: Command, operator: Operator, words: list[str], meant: set[str]
) -> None:
    bury(duebridge, ["a", "b", "m1", "m2"])
    dry = duebridge("dead", "drop", "reminders", *words, "--dry-run", "--output", "json")
    assert dry.code == 0
    assert (dry.json()["matched"], set(dry.json()["first"])) == (len(meant), meant)
    assert len(dead(operator)) == 4


def test_dry_run_says_how_many_and_the_first_ten(duebridge: Command) -> None:
    bury(duebridge, ids_to(25))
    dry = duebridge("dead", "replay", "reminders", "--all", "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert dry.out.splitlines()[0] == "would replay 25 of route reminders; the first:"
    assert len(dry.out.splitlines()) == 11
    ids = duebridge("dead", "drop", "reminders", "id-0001", "nobody", "--dry-run")
    assert ids.out == "would drop 1 of route reminders; the first:\n  id-0001\n"


def test_drop_by_filter_among_many_pages_drops_those_and_no_other(
    duebridge: Command, operator: Operator, client: Any
) -> None:
    ids = [f"{'im'[number % 2]}{name}" for number, name in enumerate(ids_to(1_000))]
    bury(duebridge, ids)
    client.config_resetstat()
    done = duebridge("dead", "drop", "reminders", "--reason", "too_large", "--output", "json")
    calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert done.code == 0
    assert done.err == "500 dropped\n"
    assert {each["status"] for each in done.json_lines()} == {"dropped"}
    assert dead(operator) == [name for name in ids if name.startswith("m")]
    assert calls < 30, "a page that is settled must not send the walk back to its beginning"


def test_drop_of_all_means_poison_that_would_expire_later_too(duebridge: Command) -> None:
    config = load_config(duebridge.file)
    with closing(duebridge.connection()) as connection:
        poison = Envelope.new(b"x", delay="0s", id="p", expires="1h")
        Producer(config, connection).schedule_many("reminders", [poison])
        shard = RouteStore.open(connection, "duebridge", config.routes["reminders"]).of("p")

        def is_buried() -> bool:
            shard.promote()
            for alone in (False, True):
                shard.claim(1, 1, alone=alone)
            shard.reclaim(poison=1)
            return shard.next().dead == 1

        wait_until(is_buried, "it to be poison")
    assert "dropped" in duebridge("dead", "drop", "reminders", "--all", "--yes").out


def test_replay_at_a_rate_is_no_faster(duebridge: Command, operator: Operator) -> None:
    bury(duebridge, ids_to(20))
    before_ms = operator.now_ms()  # the first ones may come late, and the next after them in time
    done = duebridge("dead", "replay", "reminders", "--all", "--rate", "20/s", "--delay", "1h")
    assert (done.code, done.err) == (0, "20 replayed\n")
    events = duebridge("events", "reminders", "--output", "json").json_lines()
    at_ms = [each["at_ms"] for each in events if each["kind"] == "replayed"]
    assert len(at_ms) == 20
    assert max(at_ms) - before_ms >= 900


@pytest.mark.parametrize(
    ("answer", "code"),
    [(b"n\n", 1), (b"\n", 1), (b"\x04", 130), (signal.SIGINT, 130)],
    ids=["no", "nothing", "end", "ctrl-c"],
)
def test_drop_by_filter_on_a_terminal_asks_first(
    duebridge: Command, operator: Operator, answer: bytes | signal.Signals, code: int
) -> None:
    bury(duebridge, ids_to(3))
    with drop_that_asks(duebridge) as (process, terminal):
        if isinstance(answer, bytes):
            os.write(terminal, answer)
        else:
            # CPython misses a signal that comes between the prompt and the read.
            wait_until(partial(is_asleep, process), "the command to read its terminal")
            process.send_signal(answer)
    assert (process.returncode, len(dead(operator))) == (code, 3)


def test_drop_by_filter_leaves_what_dies_while_it_asks(
    duebridge: Command, operator: Operator
) -> None:
    bury(duebridge, ids_to(3))
    with drop_that_asks(duebridge) as (process, terminal):
        bury(duebridge, ["later", "m-later"])
        os.write(terminal, b"y\n")
    assert process.returncode == 0
    assert sorted(dead(operator)) == ["later", "m-later"]


@contextmanager
def drop_that_asks(duebridge: Command) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Begin to drop the three dead of `reminders`; it has asked, and waits for the answer."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "dead", "drop", "reminders", "--all"],
        cwd=duebridge.home, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs,
        preexec_fn=hear_ctrl_c,
    )  # fmt: skip
    asked = b""
    while b"drop 3 of route reminders? [y/N]" not in asked:
        asked += os.read(ours, 1000)
    yield process, ours
    process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)


def is_asleep(process: "subprocess.Popen[bytes]") -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_drop_by_filter_with_yes_or_of_ids_does_not_ask(
    duebridge: Command, operator: Operator
) -> None:
    bury(duebridge, ids_to(3))
    for words in (["id-0000"], ["--all", "--yes"]):
        _, out = duebridge.on_terminal("dead", "drop", "reminders", *words)
        assert b"?" not in out
    assert dead(operator) == []


def test_replay_shows_its_progress_on_a_terminal_and_nowhere_else(
    duebridge: Command, tmp_path: Path
) -> None:
    bury(duebridge, ids_to(300))
    words = ("dead", "replay", "reminders", "--all", "--yes", "--delay", "1h")
    code, err = duebridge.on_terminal(*words, results=tmp_path / "results")
    assert code == 0
    assert b"settled" in err
    assert b"300 replayed" in err
    assert len((tmp_path / "results").read_text().splitlines()) == 300


def test_shunt_tries_what_the_dead_letter_target_rejected_again(duebridge: Command) -> None:
    refused = duebridge("dead", "shunt", "reminders")
    assert (refused.code, "dead_letter: expected a target; got none" in refused.err) == (2, True)
    text = duebridge.file.read_text()
    topic = "{broker: here, topic: reminders}"
    duebridge.file.write_text(
        text.replace(topic, f"{topic}, dead_letter: {{broker: here, topic: x}}", 1)
    )
    bury(duebridge, ["a", "b"])
    with closing(duebridge.connection()) as connection:
        config = load_config(duebridge.file)
        (store,) = RouteStore.open(connection, "duebridge", config.routes["reminders"]).shards
        claim = store.shunt(9, 30_000)
        rejected = [Postponement(each, None, "Large\n2 MiB") for each in claim.ids]
        store.postpone(claim.token, rejected, str(config.routes["reminders"].dead_letter))
        assert store.stats().rejected == 2
        (reminders,) = duebridge("stats", "reminders", "--output", "json").json()["routes"]
        assert reminders["rejected"] == 2
        assert "dead letter: Large: 2 MiB" in duebridge("dead", "ls", "reminders").out
        assert (
            duebridge("dead", "shunt", "reminders").out == "dead letters that are tried again: 2\n"
        )
        assert (store.stats().rejected, len(store.shunt(9, 30_000).ids)) == (0, 2)
    assert duebridge("dead", "shunt", "reminders").code == 1


@pytest.mark.parametrize("words", [["--all", "--yes"], ["--all", "--yes", "--rate", "1000/s"]])
def test_replay_spreads_over_the_time_however_many_batches_it_takes(
    duebridge: Command, operator: Operator, words: list[str]
) -> None:
    ids = ids_to(250)
    bury(duebridge, ids)
    done = duebridge("dead", "replay", "reminders", *words, "--delay", "1h", "--spread", "250m")
    assert done.code == 0
    (store,) = operator.stores("reminders")
    now_ms, hour_ms = operator.now_ms(), 3_600_000
    ends = [now_ms + hour_ms - 60_000 + 50 * 60_000 * n for n in range(6)]
    assert store.histogram(ends).pending == [50, 50, 50, 50, 50]
