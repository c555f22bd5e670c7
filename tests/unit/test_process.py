"""The set-up of a process: its log, its collector, its TLS files."""

import gc
import json
import ssl
import subprocess
import sys
from contextlib import suppress

import pytest

from duebridge.errors import ConfigError
from duebridge.ports.tls import TlsFiles, client_context, hinted
from duebridge.runtime import SWITCH_S, THRESHOLDS, short_turns, tuned_gc
from tests.support.certificates import KEY_PASSWORD, Certificates, make_certificates

PROGRAM = """\
from duebridge.config.models import WorkerSettings
from duebridge.envelope import Target
from duebridge.worker.lanes.daemon_executor import DaemonExecutor
from duebridge.worker.lanes.lane import Lane
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
lane = Lane("b", Defective(), WorkerSettings(), DaemonExecutor(1, "lane"))
print(lane.publish([delivery])[0].verdict.value)
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


FULL = """
from duebridge.telemetry.logs import configure_logs
from duebridge.worker.lanes.daemon_executor import DaemonExecutor

configure_logs()
one = DaemonExecutor(1, "only")
defect = one.submit(lambda: 1 / 0).exception(30)
print(type(defect).__name__, one.submit(lambda: "alive").result(30))
"""


def test_thread_outlives_a_line_that_cannot_be_written() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-c", FULL], stdout=subprocess.PIPE, stderr=full)
    assert done.stdout == b"ZeroDivisionError alive\n"


def test_collector_is_relaxed_within_and_as_before_after_an_error() -> None:
    before = gc.get_threshold()
    with suppress(ValueError), tuned_gc():
        assert gc.get_threshold() == THRESHOLDS
        raise ValueError
    assert gc.get_threshold() == before


def test_turns_of_threads_are_short_for_an_intake_and_as_before_after_it() -> None:
    before = sys.getswitchinterval()
    with suppress(ValueError), short_turns():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
        raise ValueError
    assert sys.getswitchinterval() == before


NAMES = TlsFiles("ca", "cert", "key", "password")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("made"))


def test_context_takes_any_pair_and_always_verifies_certificate_and_name(
    made: Certificates,
) -> None:
    for files in (
        TlsFiles(),
        TlsFiles(made.ca),
        TlsFiles(made.ca, made.client, made.client_key),
        TlsFiles(made.ca, made.client, made.locked_key, KEY_PASSWORD),
        TlsFiles(made.ca, made.server),  # certificate and key in one file
    ):
        context = client_context(files, NAMES, "")
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
        assert not files.ca or len(context.get_ca_certs()) == 1, "it trusts this authority only"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (TlsFiles("/nowhere"), "at.ca: /nowhere: No such file or directory"),
        (TlsFiles("/"), "at.ca: /: Is a directory"),
        (TlsFiles("{client_key}"), "at.ca: expected certificates in PEM; got "),
        (TlsFiles(key="{client_key}"), "at.key: has no effect without cert"),
        (TlsFiles(None, None, None, "canary"), "at.password: has no effect without cert"),
        (TlsFiles(None, "{client}", "{server_key}"), "these are not a pair"),
        (TlsFiles(None, "{client}", "{locked_key}"), "these cannot be read"),
        (TlsFiles(None, "{client}", "{locked_key}", "canary"), "these cannot be read"),
        (TlsFiles(None, "{client_key}", "{client}"), "these cannot be read"),
        (TlsFiles(None, "{client}"), "these cannot be read"),
    ],
)
def test_context_of_files_of_no_use_is_refused_without_a_secret(
    files: TlsFiles, message: str, made: Certificates
) -> None:
    given = TlsFiles(*(each and each.format(**made._asdict()) for each in files))
    with pytest.raises(ConfigError) as refused:
        client_context(given, NAMES, "at.")
    assert message in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("tlsv13 alert certificate required", " (does it want a certificate of ours?)"),
        ("unable to get local issuer certificate", " (does the CA file have"),
        ("wrong version number", " (does it speak TLS on this port?)"),
        ("Connection refused", ""),
    ],
)
def test_hint_follows_only_an_error_that_says_too_little(text: str, hint: str) -> None:
    assert hinted(text).startswith(f"{text}{hint}")
    assert hint or hinted(text) == text
