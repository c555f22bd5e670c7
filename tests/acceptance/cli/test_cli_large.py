"""ls and dead ls of many large bodies: memory is bounded by a page, not by --limit."""

import subprocess
import sys
from collections.abc import Iterator
from secrets import token_hex

import pytest

from tests.support.command import ENVIRONMENT, PROGRAM, Command, embedded_command, kill_due

LETTERS = 300  # of 75 MB together
LINE = '{"id": "id-%03d", "delay": "0s", "body": "%s"}'
# In a process of its own: a child of the tests' begins with the peak of these.
PEAK = """
import resource, subprocess, sys
found = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True).stdout.count(b"id-")
print(found, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""


@pytest.fixture(scope="module")
def duebridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """The command, on a store with large dead envelopes."""
    with embedded_command(tmp_path_factory.mktemp("large")) as command:
        lines = "\n".join(LINE % (number, token_hex(125_000)) for number in range(LETTERS))
        assert command("send", "reminders", "-", "--jsonl", stdin=lines.encode()).code == 0
        kill_due(command, LETTERS, "TooLarge\nbroke the limit")
        yield command


@pytest.mark.parametrize(
    ("words", "output"),
    [("ls", "json"), ("ls --long", "json"), ("ls --long", "table"), ("dead ls", "table")],
)
def test_ls_of_large_bodies_holds_no_more_than_a_page_of_them(
    duebridge: Command, words: str, output: str
) -> None:
    line = (PROGRAM, *words.split(), "reminders", "--limit", "1000", "--output", output)
    done = subprocess.check_output(
        [sys.executable, "-c", PEAK, *line], cwd=duebridge.home, env=ENVIRONMENT
    )
    found, peak_mib = map(int, done.split())
    assert found == LETTERS
    assert peak_mib < 100  # an interpreter with its packages takes some 60
