"""How a command starts, explains itself, completes a word, and refuses what it cannot use."""

import inspect
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.main

from duebridge.cli.app import ConfigGroup, DeadGroup, RootGroup, StoreGroup, app
from duebridge.cli.commands.events import events
from duebridge.store.keys import Shard
from duebridge.store.wire.journal_entry import EventKind
from tests.support.command import ENVIRONMENT, PROGRAM, Command, hear_ctrl_c

TAKES_LONG_TO_LOAD = {
    *("redis", "kafka", "confluent_kafka", "pika", "pyspark"),
    *("starlette", "uvicorn", "prometheus_client", "opentelemetry", "yaml"),
}


def commands(group: typer.main.TyperGroup, above: str = "") -> dict[str, bool]:
    """Return the words of every command, and whether it is a group of others."""
    found = {above: True}
    for name, command in group.commands.items():
        words = f"{above} {name}".strip()
        found |= commands(command, words) if hasattr(command, "commands") else {words: False}
    return found


@pytest.mark.parametrize("words", commands(typer.main.get_group(app)))
def test_help_of_every_command_has_an_example_and_exit_codes(
    duebridge: Command, words: str
) -> None:
    shown = duebridge(*words.split(), "--help")
    assert (shown.code, shown.err) == (0, "")
    out = shown.out.replace("--config duebridge.yaml ", "")
    assert f"Example: duebridge {words}".strip() in out
    assert "Exit codes:\n" in out
    assert "\x1b" not in out


def test_help_of_events_names_every_kind() -> None:
    of_no_envelope = {"renewed"}
    assert set(get_args(EventKind)) - of_no_envelope <= set(
        re.findall(r"\w+", events.__doc__ or "")
    )


@pytest.mark.parametrize("group", [RootGroup, DeadGroup, StoreGroup, ConfigGroup])
def test_summary_in_a_group_is_the_first_line_of_the_commands_help(group: type[RootGroup]) -> None:
    for name, spec in group.specs.items():
        if name not in ("spark", "doctor", "check", "render", "schema"):
            text = spec.load(name).help
            assert inspect.cleandoc(text).splitlines()[0] == spec.summary


def completed(duebridge: Command, *words: str) -> list[str]:
    """Return what bash would offer for the last word."""
    line = " ".join(["duebridge", *words])
    done = duebridge(
        _DUEBRIDGE_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words))
    )
    assert (done.code, done.err) == (0, "")
    return done.out.split()


def test_completion_offers_commands_routes_and_reasons(duebridge: Command) -> None:
    (duebridge.home / "other.yaml").write_text(duebridge.file.read_text().replace("invo", "cho"))
    assert completed(duebridge, "resch") == ["reschedule"]
    assert completed(duebridge, "send", "rem") == ["reminders"]
    assert completed(duebridge, "ls", "") == ["reminders", "invoices"]
    assert completed(duebridge, "--config", "other.yaml", "events", "c") == ["choices"]
    assert completed(duebridge, "dead", "ls", "--config", "other.yaml", "c") == ["choices"]
    reasons = completed(duebridge, "dead", "ls", "reminders", "--reason", "un")
    assert reasons == ["unroutable", "unauthorized"]
    assert completed(duebridge, "--config", "none.yaml", "send", "r") == []


def test_completion_script_of_a_shell_is_printed(duebridge: Command) -> None:
    shown = duebridge(_DUEBRIDGE_COMPLETE="source_bash")
    assert (shown.code, shown.err) == (0, "")
    assert "_DUEBRIDGE_COMPLETE=complete_bash" in shown.out
    assert "--install-completion" in duebridge("--help").out


@pytest.mark.parametrize("words", ["--version", "--help", "run --help", "dead replay --help"])
def test_start_of_a_command_that_does_nothing_loads_no_client(words: str) -> None:
    env = {**ENVIRONMENT, "PYTHONPROFILEIMPORTTIME": "1"}  # a line on standard error for each
    command = [PROGRAM, *words.split()]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    loaded = {
        line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()
    }
    assert "duebridge" in loaded
    assert loaded & TAKES_LONG_TO_LOAD == set()


@pytest.mark.parametrize("module", ["typer", "duebridge.cli.exits", "pydantic", "redis"])
def test_ctrl_c_while_a_command_starts_is_quiet_and_exits_130(tmp_path: Path, module: str) -> None:
    env = {
        **ENVIRONMENT,
        "DUEBRIDGE_CONFIG": "/dev/stdin",  # never written: the command waits for it
        "PYTHONPROFILEIMPORTTIME": "1",  # a line on standard error for each module
    }
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [PROGRAM, "ls", "r"], cwd=tmp_path, env=env, stdin=pipe, stdout=pipe, stderr=pipe,
        bufsize=0,  # else what is read ahead is lost to `communicate`, and the rest begins anywhere
        preexec_fn=hear_ctrl_c,
    )  # fmt: skip
    assert process.stderr
    assert any(line.split()[-1] == module.encode() for line in process.stderr)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 130
    assert [line for line in rest.splitlines() if not line.startswith(b"import time:")] == []


def test_configuration_is_that_of_the_command_then_of_the_group_then_of_the_environment(
    duebridge: Command,
) -> None:
    file, none = str(duebridge.file), {"DUEBRIDGE_CONFIG": "none.yaml"}
    assert duebridge("--config", "none.yaml", "stats", "--config", file).code == 0
    assert duebridge("--config", file, "stats", **none).code == 0
    for missing in (duebridge("stats", **none), duebridge("--config", "none.yaml", "stats")):
        assert (missing.code, missing.out) == (2, "")
        assert missing.err.startswith("none.yaml: cannot be read")
    duebridge.file.rename(duebridge.home / "moved.yaml")
    missing = duebridge("stats")
    (duebridge.home / "moved.yaml").rename(duebridge.file)
    assert missing.code == 2
    assert missing.err.rstrip().endswith("name one with --config or DUEBRIDGE_CONFIG")


MISTAKES = [
    ("", "Missing command"),
    ("cancle", "did you mean cancel?"),
    ("config chek", "No such command 'chek', did you mean check? (see"),
    ("send reminders x --delay soon", '"3d", "2w"; got \'soon\''),
    ("send reminders x --max-attempts x", "--max-attempts: expected a whole number; got 'x'"),
    ("frobnicate", "No such command 'frobnicate'"),
    ("get reminders", "duebridge get --help"),
    ("send reminders x --dealy 5s", "did you mean --delay?"),
    ("send reminders --delay 5s", "body: expected exactly one of BODY and --file"),
    ("send reminders --file none.bin --delay 1s", "none.bin"),
    ("send reminders x --jsonl", "--jsonl: expected -"),
    ("send reminders - --jsonl --key k", "expected each line to say its own"),
    ("send reminders - --jsonl --rejects /nowhere/x", "/nowhere/x: No such file or directory"),
    ("send reminders x --delay 1s --rejects x", "--rejects: expected --jsonl beside it"),
    ("send reminders x --delay 1s --header a", "expected NAME=VALUE"),
    ("send reminders x --delay 1s --id ''", "id: expected 1 to 255 bytes"),
    ("send reminders x", "exactly one of the two; got neither"),
    ("send reminders x --delay 1s --at 2126-01-31T09:00:00Z", "one of the two; got both"),
    ("send reminders x --at 1893456000", "--at: expected"),
    ("send reminders x --delay 1h --header x-route=1", "header 'x-route': expected a name"),
    ("cancel invoices x --ended-since 1767225600000", "expected - as the id"),
    ("reschedule reminders x", "expected exactly one of the two; got neither"),
    ("reschedule reminders x --delay soon", "got 'soon'"),
    ("cancel reminder x", "got 'reminder', did you mean reminders?"),
    ("stats --output xml", "--output: expected one of table, json; got 'xml'"),
    ("stats --every 1s", "--every: expected"),
    ("stats --watch --every 99ms", "--every: expected"),
    ("stats --watch --histogram", "--histogram excludes --watch"),
    ("stats --horizon day", "--horizon needs --histogram"),
    ("events --limit 99999999999999999999", "--limit: expected at most 1000000000; got"),
    ("ls reminders --limit 99999999999999999999", "--limit: expected at most 1000000000; got"),
    ("cancel invoices - --ended-since soon", "--ended-since: expected RFC 3339"),
    ("events --since soon", "or a duration ago, such as 15m; got 'soon'"),
    ("ls reminders --due-after soon", "or a duration from now, such as 15m; got 'soon'"),
    ("send reminders x --delay 1h --expires soon", "or a duration, such as 15m; got 'soon'"),
    ("ls reminders --cursor no", "cursor: expected one that ls printed; got 'no'"),
    ("ls reminders --state gone", "--state: expected one of pending, ready, unack,"),
    ("ls reminders --due-before soon", "--due-before: expected RFC 3339"),
    ("ls reminders --due-after 1893456000", "looks like seconds"),
    (
        "send reminders x --at 20261231",
        "got 20261231, which looks like a date",
    ),
    ("ls reminders --limit 0", "--limit: expected at least 1; got '0'"),
    ("dead drop reminders", "expected ids, a filter such as --reason, or --all; got nothing"),
    ("dead drop reminders a --all", "got ids and --all"),
    ("dead drop reminders a --reason expired", "got ids and a filter"),
    ("dead drop reminders --reason bored", "reason: expected one of attempts_exhausted"),
    ("dead drop reminders --all --rate 5", "--rate: expected a whole number a second"),
    ("dead drop reminders --before soon", "--before: expected RFC 3339"),
    ("dead drop reminders --after -1h", "--after: expected a duration"),
    ("store purge", "expected names of routes, or --all; got neither"),
    ("store purge reminders --all", "expected names of routes, or --all; got both"),
]
# What only the store can tell: its clock, its routes.
REFUSALS = [
    ("send reminders x --delay 31d", "due: expected within max_delay (30d) of now"),
    ("send reminders x --delay 2h --expires 1h", "expires: expected an instant after"),
    ("store purge no-such --yes", "route: expected one of the configuration or the store"),
]


@pytest.mark.parametrize(("words", "expected"), REFUSALS)
def test_mistake_that_the_store_tells_exits_2_with_one_line_and_stores_nothing(
    duebridge: Command, client: Any, words: str, expected: str
) -> None:
    check_refused(duebridge, words, expected)
    assert not client.exists(Shard("duebridge", "reminders", 0).key("envelopes"))


@pytest.mark.parametrize(("words", "expected"), MISTAKES)
def test_usage_mistake_exits_2_with_one_line_before_the_store_is_asked(
    tmp_path: Path, words: str, expected: str
) -> None:
    check_refused(Command(tmp_path, f"unix://{tmp_path}/nobody.sock"), words, expected)


def check_refused(duebridge: Command, words: str, expected: str) -> None:
    """Check that a command exits 2 with one line, which has the expected text."""
    refused = duebridge(*shlex.split(words), stdin=b'{"body": "x", "delay": "1h"}\n')
    assert (refused.code, refused.out) == (2, "")
    assert expected in refused.err
    assert len(refused.err.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    ["send reminder x --delay 1h", "cancel reminder x", "reschedule reminder x --delay 1h",
     "get reminder x", "ls reminder", "events reminder", "stats reminder",
     "deliver-now reminder x", "dead ls reminder", "dead shunt reminder"],
)  # fmt: skip
def test_unknown_route_exits_2_and_names_those_there_are(duebridge: Command, words: str) -> None:
    refused = duebridge(*words.split())
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("duebridge: route: expected one of the configuration")
    assert "(invoices, reminders); got 'reminder'" in refused.err
