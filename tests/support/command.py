"""The installed `duebridge` command as a person runs it: a process, on an embedded store."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from duebridge.ports.publisher import Reason
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.embedded import stop_embedded
from tests.support import servers
from tests.support.desk import burial
from tests.support.forks import Forks

PROGRAM = str(Path(sys.executable).with_name("duebridge"))
WITHIN_S = 60.0
FORKS = Forks()
wait_until = partial(servers.wait_until, within_s=WITHIN_S)
# As a person has it: output is buffered, which shows what becomes of what could not be written.
ENVIRONMENT = {name: given for name, given in os.environ.items() if name != "PYTHONUNBUFFERED"}

CONFIG = """\
version: 1
store: {{url: "{url}"}}
brokers:
  here: {{type: memory}}
routes:
  reminders: {{target: {{broker: here, topic: reminders}}, max_delay: 30d}}
  invoices: {{target: {{broker: here, topic: invoices}}, shards: 3}}
"""


def hear_ctrl_c() -> None:
    """Undo what a shell does to what it runs in the background: to ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one object that was printed."""
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        """The objects that were printed, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Command:
    """`duebridge` in a directory of its own, with its own configuration file."""

    def __init__(
        self, home: Path, url: str, config: str = CONFIG, within_s: float = WITHIN_S
    ) -> None:
        self.home = home
        self.url = url
        self.within_s = within_s
        self.file = home / "duebridge.yaml"
        self.file.write_text(config.format(url=url))

    def __call__(self, *args: str, stdin: bytes = b"", **env: str) -> Done:
        """Run to the end."""
        if "PYTHONPATH" in env:  # which only a new interpreter heeds
            process = self.start(*args, **env)
            out, err = process.communicate(stdin, timeout=self.within_s)
            return Done(process.returncode, out.decode(), err.decode())
        given = {**ENVIRONMENT, **env}
        code, out, err = FORKS.run(args, stdin, self.home, given, self.within_s)
        return Done(code, out.decode(), err.decode())

    def start(self, *args: str, **env: str) -> subprocess.Popen[bytes]:
        """Begin; the caller ends it."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [PROGRAM, *args],
            cwd=self.home,
            env={**ENVIRONMENT, **env},
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            preexec_fn=hear_ctrl_c,
        )

    def on_terminal(
        self, *args: str, stdin: bytes = b"", results: Path | None = None, **env: str
    ) -> tuple[int, bytes]:
        """Run on a terminal of its own; returns the code and what that shows.

        `results` takes standard output away from the terminal.
        """
        words = [PROGRAM, *args]
        if results is not None:
            words = ["sh", "-c", 'exec "$@" > "$0"', str(results), *words]
        program = (
            "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=self.home,
            env={"PATH": "/usr/bin:/bin", "TERM": "xterm", **env},
            input=stdin,
            capture_output=True,
            timeout=WITHIN_S,
            preexec_fn=hear_ctrl_c,
        )
        return done.returncode, done.stdout

    def connection(self) -> Connection:
        """A connection of the test's own to the same store."""
        return open_connection(self.url)


@contextmanager
def embedded_command(home: Path) -> Iterator[Command]:
    """Give the command on an embedded store of its own, whose server is stopped at the end."""
    store = home / "store"
    yield Command(home, f"embedded:{store}")
    stop_embedded(store)


def kill_due(command: Command, count: int, error: str) -> None:
    """See to it that the due envelopes of `reminders`, which has one shard, are dead."""
    connection = command.connection()
    store = DelayStore(connection, Shard("duebridge", "reminders", 0))

    def kill_some() -> bool:
        poll, _ = store.promote()
        claim = store.claim(poll.ready, 30_000) if poll.ready else None
        if claim is not None:
            burials = [burial(each, Reason.TOO_LARGE, error=error) for each in claim.ids]
            store.bury(claim.token, burials)
        return store.next().dead == count

    wait_until(kill_some, f"{count} envelopes to be dead")
    connection.close()
