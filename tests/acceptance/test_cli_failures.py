"""What a command says and exits with when the store cannot serve it; no secret is ever shown."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import CONFIG, ENVIRONMENT, PROGRAM, Command, embedded_command

CANARY = "canary-7f3a9c"
COMMANDS = [
    "run",
    "send reminders hello --delay 1h",
    "send reminders - --jsonl",
    "cancel reminders x",
    "reschedule reminders x --delay 1h",
    "get reminders x",
    "stats",
    "stats --watch",
    "ls reminders",
    "events --follow",
    "dead ls reminders",
    "dead show reminders x",
    "dead replay reminders x",
    "dead drop reminders --all",
]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


def ended(duebridge: Command, words: str) -> tuple[int, str]:
    """Return the code and the one line of an error; nothing else was printed."""
    done = duebridge(*words.split(), stdin=b'{"body": "x", "delay": "1h"}\n', SECRET=CANARY)
    assert done.out == ""
    assert CANARY not in done.err
    assert "Traceback" not in done.err
    (line,) = done.err.splitlines()
    return done.code, line


@pytest.mark.parametrize("words", COMMANDS)
def test_store_unreachable_exits_3_and_shows_no_secret(
    tmp_path: Path, closed_port: int, words: str
) -> None:
    duebridge = Command(tmp_path, f"redis://user:{CANARY}@127.0.0.1:{closed_port}/0")
    code, line = ended(duebridge, words)
    assert code == 3
    assert str(closed_port) in line


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("redis://user:" + CANARY + "@127.0.0.1:{port}/0", 3),
        ("redis://user:${{SECRET}}@127.0.0.1:{port}/0", 3),
        ("redis://user:" + CANARY + "@127.0.0.1:" + CANARY + "/0", 2),
        ("redis://user:" + CANARY + "/x@127.0.0.1:{port}/0", 2),
        ("rediss:user:" + CANARY + "@127.0.0.1", 2),
        ("http://user:" + CANARY + "@127.0.0.1", 2),
        (CANARY, 2),
        ("embedded:/dev/null/store", 3),
    ],
    ids=range(8),
)
def test_store_url_of_any_kind_is_never_shown(
    tmp_path: Path, closed_port: int, url: str, code: int
) -> None:
    duebridge = Command(
        tmp_path, "", CONFIG.replace("{url}", url.replace("{port}", str(closed_port)))
    )
    assert ended(duebridge, "stats")[0] == code
    assert ended(duebridge, "run")[0] == code


def test_missing_variable_exits_2_and_names_it(tmp_path: Path) -> None:
    duebridge = Command(tmp_path, "", CONFIG.replace("{url}", "redis://:${{NO_SUCH}}@127.0.0.1/0"))
    code, line = ended(duebridge, "stats")
    assert code == 2
    assert "NO_SUCH" in line


def test_unfit_store_exits_3_and_says_what_to_mend(tmp_path: Path) -> None:
    with embedded_command(tmp_path) as duebridge:
        connection = duebridge.connection()
        connection.client.config_set("maxmemory-policy", "allkeys-lru")
        connection.close()
        for words in ("run", "send reminders hello --delay 1h"):
            code, line = ended(duebridge, words)
            assert code == 3
            assert "expected maxmemory-policy noeviction" in line


def test_full_store_exits_3(tmp_path: Path) -> None:
    with embedded_command(tmp_path) as duebridge:
        connection = duebridge.connection()
        connection.client.config_set("maxmemory", "1")
        connection.close()
        code, line = ended(duebridge, "send reminders hello --delay 1h")
        assert code == 3
        assert "out of memory" in line


def test_argument_that_is_no_utf8_exits_2_and_body_may_be_any_bytes(tmp_path: Path) -> None:
    with embedded_command(tmp_path) as duebridge:
        code, line = ended(duebridge, "get reminders \udcff")
        assert code == 2
        assert "UTF-8" in line
        assert (
            duebridge("send", "reminders", "\udcff", "--delay", "1h", "--key", "\udcff").code == 0
        )


def test_closed_standard_streams_are_told_or_silent_and_never_a_defect(tmp_path: Path) -> None:
    with embedded_command(tmp_path) as duebridge:
        for words, code in (
            ("send reminders - --delay 1h <&-", 2),
            ("send reminders - --jsonl <&-", 2),
            ("send reminders x --delay 1h >&-", 0),
            ("stats >&-", 0),
            ("stats >/dev/full", 2),
            ("frobnicate 2>&-", 2),
        ):
            shell = ["sh", "-c", f"'{PROGRAM}' {words}"]
            done = subprocess.run(
                shell, cwd=duebridge.home, env=ENVIRONMENT, capture_output=True, timeout=60
            )
            assert (words, done.returncode) == (words, code)
            assert b"defect" not in done.stderr
