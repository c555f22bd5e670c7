"""Commands for many, cut short by the store or by Ctrl-C, say what is done."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from duebridge.store.server.embedded import socket_path
from tests.acceptance.site import impatient
from tests.support.command import ENVIRONMENT, PROGRAM, Command
from tests.support.redis.redis_node import RedisNode


def cancelling(duebridge: Command, *ids: str, **env: str) -> subprocess.Popen[bytes]:
    """A cancel of many that has cancelled these, and reads on."""
    for name in ids:
        assert duebridge("send", "invoices", "x", "--delay", "1h", "--id", name).code == 0
    process = duebridge.start("cancel", "invoices", "-", **env)
    for name in ids:
        name_a_further(process, name)
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"cancelled")
    return process


def name_a_further(process: subprocess.Popen[bytes], name: str) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"id": name}).encode() + b"\n")
    process.stdin.flush()


def test_cancel_of_many_that_the_store_ends_says_what_is_done(
    tmp_path: Path, own_redis: RedisNode
) -> None:
    duebridge = Command(tmp_path, own_redis.url)
    process = cancelling(duebridge, "a", "b", **impatient(tmp_path))
    own_redis.kill()
    name_a_further(process, "c")
    out, err = process.communicate(timeout=60)
    (line,) = err.decode().splitlines()
    assert (process.returncode, out) == (3, b"")
    assert line.endswith("; no answer for id 'c'; before that: 2 cancelled")


def test_cancel_of_many_interrupted_exits_130_and_says_what_is_done(duebridge: Command) -> None:
    process = cancelling(duebridge, "a", "b")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err == b"duebridge: interrupted; before that: 2 cancelled\n"


FULL = "/dev/full"


def fed(
    duebridge: Command, given: bytes, *words: str, out: str = "", err: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose output, or what it complains of, goes to a file."""
    redirected = "".join(f" {n}>{file}" for n, file in ((1, out), (2, err)) if file)
    line = ["sh", "-c", f'exec "$@"{redirected}', "sh", PROGRAM, *words]
    return subprocess.run(
        line, cwd=duebridge.home, env=ENVIRONMENT, input=given, capture_output=True, timeout=60
    )


@pytest.mark.parametrize(
    ("words", "out", "place", "refused"),
    [((), FULL, "standard output", 0), (("--rejects", FULL), "", FULL, 1)],
    ids=["output", "rejects"],
)
def test_send_of_many_to_a_full_disk_says_what_is_stored(
    duebridge: Command, words: tuple[str, ...], out: str, place: str, refused: int
) -> None:
    lines = b'{"id": "a", "body": "x", "delay": "1h"}\n{"id": "b"}\n'
    done = fed(duebridge, lines, "send", "invoices", "-", "--jsonl", *words, out=out)
    assert (done.returncode, done.stderr.decode().splitlines()[-1]) == (
        2,
        f"duebridge: {place}: No space left on device; 1 lines stored, {refused} refused;"
        " lines before 3 are done, later ones may not be stored",
    )


def test_cancel_of_many_to_a_full_disk_says_what_is_done(duebridge: Command) -> None:
    duebridge("send", "invoices", "x", "--delay", "1h", "--id", "a")
    done = fed(duebridge, b'{"id": "a"}\n{"id": "b"}\n', "cancel", "invoices", "-", out=FULL)
    assert (done.returncode, done.stderr.decode()) == (
        2,
        "duebridge: standard output: No space left on device; before that: 1 cancelled\n",
    )


def test_cancel_of_many_that_cannot_complain_goes_on(duebridge: Command) -> None:
    duebridge("send", "invoices", "x", "--delay", "1h", "--id", "a")
    given = b'nonsense\n{"id": "a"}\n'
    done = fed(duebridge, given, "cancel", "invoices", "-", err=FULL)
    assert (done.returncode, done.stdout) == (1, b"cancelled  a\n")


def test_purge_that_the_store_ends_names_the_routes_that_are_gone(
    duebridge: Command, client: Any, tmp_path: Path
) -> None:
    for route in ("reminders", "invoices"):
        duebridge("send", route, "x", "--delay", "1h")
    rights = ["on", ">x", "~*", "&*", "+@all", "-unlink", "(+unlink|~{duebridge:reminders:*)"]
    client.execute_command("ACL", "SETUSER", "half", *(each.replace("|", " ") for each in rights))
    path = socket_path(Path(duebridge.url.removeprefix("embedded:")))
    half = Command(tmp_path, f"unix://half:x@{path}")
    done = half("store", "purge", "reminders", "invoices", "--yes")
    client.execute_command("ACL", "DELUSER", "half")
    assert (done.code, done.out) == (3, "")
    assert done.err.endswith("; before that: reminders purged\n")
    assert duebridge("ls", "invoices", "--output", "json").json()["state"] == "pending"
