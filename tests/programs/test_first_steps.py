"""Tutorial and README typed block by block as their readers do; the blocks of the guides."""

import re
import secrets
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient

from duebridge.store.server.embedded import socket_path, stop_embedded
from tests.programs.site import Open, Running, Site
from tests.support.checkout import ROOT
from tests.support.servers import wait_until

README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^ *```(?:sh|yaml|python)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
DIRECTORY = re.compile(r"/tmp/duebridge-\w+")  # noqa: S108 - the pages' own
INSTALLS = "make venv services-up"  # done, or no test would run
NEW_TERMINAL = ("eval ", "export ", "mkdir ")


@pytest.fixture
def route(kafka_bootstrap: str) -> Iterator[str]:
    """A name for a page's topic and route; at the end its topics are gone."""
    route = f"steps-{secrets.token_hex(4)}"
    yield route
    with closing(KafkaAdminClient(bootstrap_servers=kafka_bootstrap)) as admin:
        admin.delete_topics([each for each in admin.list_topics() if each.startswith(route)])


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A directory; at the end the store that a page keeps in it is stopped."""
    yield tmp_path
    stop_embedded(tmp_path / ".duebridge")


def blocks_of(page: Path, home: Path, route: str) -> list[str]:
    """Return the blocks of a page's steps, in a directory and with names of the test's own."""
    text = page.read_text().partition("## Documentation")[0].replace(INSTALLS, "")
    text = DIRECTORY.sub(str(home), text).replace("reminders", route)
    return [textwrap.dedent(block) for block in BLOCK.findall(text)]


class Terminals:
    """Types blocks, each in a new terminal: after the lines that a page has repeated there."""

    def __init__(self, site: Site, setup: str) -> None:
        self._site = site
        lines = [line for line in setup.splitlines() if line.startswith(NEW_TERMINAL)]
        self._begin = "\n".join([f"cd '{ROOT}'", "export PYTHONUNBUFFERED=1", *lines])
        self.type(setup)

    def type(self, block: str) -> str:
        """Type a block, which has to succeed; return what it prints."""
        return self._site.call(["bash", "-ec", f"{self._begin}\n{block}"])

    def leave_running(self, command: str) -> Running:
        """Type a command that goes on until Ctrl-C."""
        return self._site.start(["bash", "-ec", f"{self._begin}\nexec {command}"])


def read_message(terminals: Terminals, command: str) -> str:
    """Return what a consumer prints of the first message."""
    return terminals.leave_running(command).line("ConsumerRecord")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_tutorial_as_typed_delivers_the_message(home: Path, route: str, open_site: Open) -> None:
    blocks = blocks_of(TUTORIAL, home, route)
    setup, config, check, calls, run, consume = blocks
    terminals = Terminals(open_site(home), setup)
    (home / "duebridge.yaml").write_text(config)
    assert terminals.type(check).startswith("duebridge.yaml: ok")
    told = [line.split()[0] for line in terminals.type(calls).splitlines()]
    for status in ("accepted", "rescheduled", "cancelled"):
        assert status in told
    terminals.leave_running(run)
    message = read_message(terminals, consume)
    assert "value=b'call back'" in message
    assert "key=b'customer-7'" in message
    *_, remind, _ = blocks_of(README, home, route)
    assert typed_program(terminals, home, remind) == ["accepted", "cancelled"]
    [stop] = re.findall(r"`(kill [^`]+)`", TUTORIAL.read_text())
    terminals.type(stop)
    wait_until(lambda: not answers(home / ".duebridge"), "the embedded store to end")


def answers(store: Path) -> bool:
    """Whether an embedded store takes connections."""
    with socket.socket(socket.AF_UNIX) as asked:
        return asked.connect_ex(str(socket_path(store.resolve()))) == 0


@pytest.mark.long
@pytest.mark.timeout(300)
def test_readme_as_typed_delivers_the_message(tmp_path: Path, route: str, open_site: Open) -> None:
    setup, config, remind, first = blocks_of(README, tmp_path, route)[-4:]
    terminals = Terminals(open_site(tmp_path), setup)
    own = config.replace('/0}"}', f'/0}}", namespace: {route}}}')  # the Redis is everybody's
    assert route in own.splitlines()[1]
    (tmp_path / "duebridge.yaml").write_text(own)
    *commands, run = first.splitlines()
    (tmp_path / "remind.py").write_text(remind)
    told = terminals.type("\n".join(commands))
    assert "failure: 0" in told
    assert "cancelled" in told.splitlines()
    terminals.leave_running(run)
    *_, consume = blocks_of(TUTORIAL, tmp_path, route)
    assert "value=b'call back'" in read_message(terminals, consume)


def typed_program(terminals: Terminals, home: Path, text: str) -> list[str]:
    """Return the first word of each line that a program of the README prints."""
    (home / "remind.py").write_text(text)
    return [line.split()[0] for line in terminals.type("python remind.py").splitlines()]


def test_blocks_of_the_guides_are_the_examples_lines() -> None:
    program = ROOT / "deploy" / "docs" / "guides.py"
    told = subprocess.run(
        [sys.executable, str(program), "--check"], capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (0, "")
