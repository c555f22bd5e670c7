"""What a command says and exits with when the store cannot serve it; no secret is ever shown."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.site import impatient
from tests.support.command import CONFIG, ENVIRONMENT, PROGRAM, Command

CANARY = "canary-7f3a9c"
USER = f"redis://user:{CANARY}"
COMMANDS = [
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


def ended(duebridge: Command, words: str, **env: str) -> tuple[int, str]:
    """Return the code and the one line of an error; nothing else was printed."""
    stdin = b'{"body": "x", "delay": "1h"}\n'
    done = duebridge(*words.split(), stdin=stdin, SECRET=CANARY, **env)
    assert done.out == ""
    assert CANARY not in done.err
    assert "Traceback" not in done.err
    (line,) = done.err.splitlines()
    return done.code, line


@pytest.mark.parametrize("words", COMMANDS)
def test_store_unreachable_exits_3_and_shows_no_secret(
    tmp_path: Path, closed_port: int, words: str
) -> None:
    code, line = ended(Command(tmp_path, f"{USER}@127.0.0.1:{closed_port}/0"), words)
    assert code == 3
    assert str(closed_port) in line


@pytest.mark.parametrize("words", ["run", "serve"])
def test_process_whose_store_stays_unreachable_exits_3_and_shows_no_secret(
    tmp_path: Path, closed_port: int, words: str
) -> None:
    duebridge = Command(tmp_path, f"{USER}@127.0.0.1:{closed_port}/0")
    code, line = ended(duebridge, words, **impatient(tmp_path))
    assert code == 3
    assert str(closed_port) in line


@pytest.mark.parametrize(
    ("url", "code", "told"),
    [
        ("redis://user:${{SECRET}}@127.0.0.1:{port}/0", 3, "{port}"),
        ("redis://:${{NO_SUCH}}@127.0.0.1/0", 2, "NO_SUCH"),
        (f"{USER}@no.such.host.invalid/0", 3, "no.such.host.invalid"),
        (f"{USER}@127.0.0.1:{CANARY}/0", 2, ""),
        (f"{USER}/x@127.0.0.1:{{port}}/0", 2, ""),
        (f"rediss:user:{CANARY}@127.0.0.1", 2, ""),
        (f"http://user:{CANARY}@127.0.0.1", 2, ""),
        (CANARY, 2, ""),
        ("embedded:/dev/null/store", 3, ""),
    ],
    ids=range(9),
)
def test_store_url_of_any_kind_is_never_shown(
    tmp_path: Path, closed_port: int, url: str, code: int, told: str
) -> None:
    port = str(closed_port)
    duebridge = Command(tmp_path, "", CONFIG.replace("{url}", url.replace("{port}", port)))
    found, line = ended(duebridge, "stats")
    assert found == code
    assert told.replace("{port}", port) in line


@pytest.mark.parametrize(
    ("setting", "value", "usual", "words", "expected"),
    [
        ("maxmemory-policy", "allkeys-lru", "noeviction", "run", "maxmemory-policy noeviction"),
        ("maxmemory-policy", "allkeys-lru", "noeviction", "send reminders x --delay 1h", "policy"),
        ("maxmemory", "1", "0", "send reminders x --delay 1h", "out of memory"),
    ],
)
def test_unfit_or_full_store_exits_3_and_says_why(
    duebridge: Command, client: Any, setting: str, value: str, usual: str, words: str, expected: str
) -> None:
    client.config_set(setting, value)
    code, line = ended(duebridge, words)
    client.config_set(setting, usual)
    assert code == 3
    assert expected in line


def test_argument_that_is_no_utf8_exits_2_and_body_may_be_any_bytes(duebridge: Command) -> None:
    code, line = ended(duebridge, "get reminders \udcff")
    assert code == 2
    assert "UTF-8" in line
    assert duebridge("send", "reminders", "\udcff", "--delay", "1h", "--key", "\udcff").code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("send reminders - --delay 1h <&-", 2),
        ("send reminders - --jsonl <&-", 2),
        ("send reminders x --delay 1h >&-", 0),
        ("stats >/dev/full", 2),
        ("frobnicate 2>&-", 2),
    ],
)
def test_closed_standard_stream_is_told_or_silent_and_never_a_defect(
    duebridge: Command, words: str, code: int
) -> None:
    shell = ["sh", "-c", f"'{PROGRAM}' {words}"]
    done = subprocess.run(
        shell, cwd=duebridge.home, env=ENVIRONMENT, capture_output=True, timeout=60
    )
    assert done.returncode == code
    assert b"defect" not in done.stderr
