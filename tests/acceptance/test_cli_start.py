"""How a command starts: quickly, quietly on Ctrl-C, and with an answer to what was mistyped."""

import inspect
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from duebridge.cli.app import ConfigGroup, DeadGroup, RootGroup, StoreGroup
from tests.support.command import ENVIRONMENT, PROGRAM, Command, embedded_command, hear_ctrl_c

MOST_CPU_S = 0.3


@pytest.fixture(scope="module")
def duebridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with embedded_command(tmp_path_factory.mktemp("cli")) as command:
        yield command


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("words", ["--version", "--help", "run --help", "dead replay --help"])
def test_start_of_a_command_takes_little_cpu(words: str) -> None:
    spent = []
    for _ in range(3):
        before = cpu_s()
        subprocess.run([PROGRAM, *words.split()], check=True, capture_output=True)
        spent.append(cpu_s() - before)
    assert min(spent) <= MOST_CPU_S


@pytest.mark.parametrize("module", ["typer", "duebridge.cli.exits", "pydantic", "redis"])
def test_ctrl_c_while_a_command_starts_is_quiet_and_exits_130(tmp_path: Path, module: str) -> None:
    process = subprocess.Popen(
        [PROGRAM, "stats"],
        cwd=tmp_path,
        env={
            **ENVIRONMENT,
            "DUEBRIDGE_CONFIG": "/dev/stdin",  # never written: the command waits for it
            "PYTHONPROFILEIMPORTTIME": "1",  # a line on standard error for each module
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=hear_ctrl_c,
    )
    assert process.stderr
    assert any(line.split()[-1] == module.encode() for line in process.stderr)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 130
    assert [line for line in rest.splitlines() if not line.startswith(b"import time:")] == []


@pytest.mark.parametrize("group", [RootGroup, DeadGroup, StoreGroup, ConfigGroup])
def test_summary_in_a_group_is_the_first_line_of_the_commands_help(
    group: type[RootGroup] | type[DeadGroup],
) -> None:
    for name, spec in group.specs.items():
        if name not in ("spark", "doctor", "check", "render", "schema"):
            text = spec.load(name).help
            assert inspect.cleandoc(text).splitlines()[0] == spec.summary


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("cancle", "did you mean 'cancel'?"),
        ("dead rplay", "did you mean 'replay'?"),
        ("send --dealy 5s", "did you mean --delay?"),
    ],
)
def test_misspelt_word_is_answered_with_the_right_one(
    duebridge: Command, words: str, hint: str
) -> None:
    done = duebridge(*words.split())
    assert (done.code, done.out) == (2, "")
    assert hint in done.err


def test_missing_configuration_names_the_option_and_the_variable(
    duebridge: Command, tmp_path: Path
) -> None:
    done = subprocess.run([PROGRAM, "stats"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--config" in done.stderr
    assert "DUEBRIDGE_CONFIG" in done.stderr


def test_replay_of_a_pending_id_says_that_it_is_pending(duebridge: Command) -> None:
    duebridge("send", "reminders", "x", "--delay", "1h", "--id", "waiting")
    done = duebridge("dead", "replay", "reminders", "waiting")
    assert (done.code, done.out) == (1, "unknown    waiting\n")
    assert done.err == "duebridge: 'waiting' is pending, not dead\n"


def test_reschedule_prints_the_new_due(duebridge: Command) -> None:
    duebridge("send", "reminders", "x", "--delay", "1h", "--id", "moved")
    done = duebridge("reschedule", "reminders", "moved", "--at", "2026-12-01T09:00:00Z")
    assert "2026-12-01T09:00:00" in done.out or done.code == 2  # beyond max_delay by then


def test_run_on_a_busy_health_port_names_the_address(duebridge: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))  # noqa: S104
        taken.listen()
        port = taken.getsockname()[1]
        done = duebridge("run", "--health-port", str(port))
    assert done.code == 2
    assert f"0.0.0.0:{port}" in done.err


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ('{"body": {"a": 1}, "delay": "1h"}', "body: expected text"),
        ('{"body": {"a": 1}, "delay": "1h"}', "use json"),
        ('{"body": "x", "delay": 5}', 'delay: expected a duration such as "15m"; got 5'),
        ('{"body": "x", "json": 1, "delay": "1h"}', "exactly one of body and json; got both"),
        ('{"delay": "1h"}', "exactly one of body and json; got neither"),
    ],
)
def test_line_with_a_wrong_field_says_what_it_has_to_be(
    duebridge: Command, line: str, answer: str
) -> None:
    done = duebridge("send", "reminders", "-", "--jsonl", stdin=line.encode())
    assert done.code == 1
    assert answer in done.err


def test_line_with_json_sends_that_value(duebridge: Command) -> None:
    line = b'{"json": {"a": [1, null]}, "delay": "1h", "id": "value"}'
    done = duebridge("send", "reminders", "-", "--jsonl", "--output", "json", stdin=line)
    assert done.json()["status"] == "accepted"
    same = duebridge(
        "send", "reminders", '{"a": [1, null]}', "--delay", "1h", "--id", "value",
        "--content-type", "application/json",
    )  # fmt: skip
    assert same.out.startswith("duplicate")
