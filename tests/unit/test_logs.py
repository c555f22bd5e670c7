"""The log of a process as it is set up: an exception shows where it was, and no variable."""

import json
import subprocess
import sys

PROGRAM = """\
from duebridge.config.models import WorkerSettings
from duebridge.envelope import Target
from duebridge.worker.lane import Lane
from duebridge.telemetry.logs import configure_logs
from duebridge.ports.publisher import Delivery

class Defective:
    password = "canary-password"
    def publish(self, batch):
        password, body = self.password, batch[0].body
        raise ValueError("what went wrong")

configure_logs()
target, headers = Target("b", topic="t"), (("h", "canary-header"),)
delivery = Delivery("a", target, b"canary-body", b"canary-key", headers)
print(Lane("b", Defective(), WorkerSettings()).publish([delivery])[0].verdict.value)
"""
ON_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


def test_exception_in_the_log_is_one_line_of_json_without_variables() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    assert done.stdout == b"indeterminate\n"
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    (found,) = [line for line in lines if line["event"] == "publisher_failed"]
    assert found["broker"] == "b"
    assert found["exception"][0]["exc_value"] == "what went wrong"
    assert "publish" in [frame["name"] for frame in found["exception"][0]["frames"]]
    assert b"canary" not in done.stderr


def test_exception_on_a_terminal_is_a_traceback_without_variables() -> None:
    command = [sys.executable, "-c", ON_TERMINAL, sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    assert b"publisher_failed" in done.stdout
    assert b"ValueError: what went wrong" in done.stdout
    assert b"indeterminate" in done.stdout
    assert b"canary" not in done.stdout
