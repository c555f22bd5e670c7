"""`send --jsonl` of any lines: each is named as refused, or stored as it says; no other is lost."""

import re
from pathlib import Path

import pytest
from hypothesis import given

from duebridge.admin.operator import Operator
from duebridge.cli.lines import is_empty, parse_line
from duebridge.config.load import load_config
from duebridge.envelope import Envelope
from duebridge.errors import EnvelopeError
from duebridge.store.connection import Connection
from tests.acceptance.command import CONFIG, Command
from tests.fuzz.budget import drawn, fuzz
from tests.fuzz.lines import lines

ROUTE = "reminders"


def parsed(line: bytes) -> Envelope | None:
    """The envelope of a line; None for a remark, and for what is refused."""
    try:
        return None if is_empty(line) else parse_line(line)
    except EnvelopeError as error:
        return None if "expected" in str(error) else pytest.fail(str(error))


def test_lines_are_refused_by_number_or_stored_as_they_say(
    tmp_path: Path, store_url: str, connection: Connection
) -> None:
    given_lines: list[bytes] = []
    envelopes: list[Envelope | None] = []

    @fuzz(0.2)
    @given(line=lines())
    def gather(line: bytes) -> None:
        envelopes.append(parsed(line))
        given_lines.append(line)
        drawn["envelopes"] += 1

    gather()
    connection.client.flushdb()
    command = Command(tmp_path, store_url, CONFIG)
    words = ("send", ROUTE, "-", "--jsonl", "--output", "json", "--rejects", "rejects")
    sent = command(*words, stdin=b"\n".join(given_lines) + b"\n")
    assert sent.code == 1, sent.err
    taken = [each for each in envelopes if each is not None]
    receipts = sent.json_lines()
    assert len(receipts) == len(taken)
    operator = Operator(load_config(command.file), connection)
    for envelope, receipt in zip(taken, receipts, strict=True):
        if receipt["status"] == "accepted":
            check_stored(envelope, receipt["id"], operator)
    check_refused(given_lines, envelopes, sent.err, tmp_path)
    connection.client.flushdb()


def check_stored(envelope: Envelope, id: str, operator: Operator) -> None:
    shown = operator.show(ROUTE, id)
    assert shown is not None
    found = (shown.body, shown.key, shown.headers, shown.properties, shown.max_attempts)
    assert found == (
        envelope.body,
        envelope.key,
        envelope.headers,
        envelope.properties,
        envelope.max_attempts,
    )


def check_refused(
    given_lines: list[bytes], envelopes: list[Envelope | None], complaints: str, home: Path
) -> None:
    """Every line that is no envelope is named, and kept as it came."""
    named = {int(number) for number in re.findall(r"^line (\d+): ", complaints, re.MULTILINE)}
    kept = (home / "rejects").read_bytes()
    for number, (line, envelope) in enumerate(zip(given_lines, envelopes, strict=True), 1):
        if envelope is None and not is_empty(line):
            assert number in named
        if number in named:
            assert b"# line %d: " % number in kept
            assert b"\n" + line + b"\n" in kept
