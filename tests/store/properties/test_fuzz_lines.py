"""`send --jsonl` of any lines: each is named as refused, or stored as it says; no other is lost."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duebridge.admin.operator import Operator
from duebridge.config.load import load_config
from duebridge.envelope import Envelope
from duebridge.errors import EnvelopeError
from duebridge.jsonl import is_empty, parse_line
from tests.support.command import CONFIG, Command
from tests.support.model.fuzzing import embedded, fuzz

ROUTE = "reminders"
NAMES = "body delay at id expires key headers max_attempts remember target priority nonsense"
INSTANTS = ["2026-11-21T10:00:00", "0001-01-01T00:00:00+23:59", "9" * 30, "1" * 5000, "24:00"]
text = st.text(max_size=20)
scalar = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | text
value = scalar | st.lists(text, max_size=3) | st.dictionaries(text, text, max_size=2)
value |= st.sampled_from([*INSTANTS, {"base64": "AAE="}, {"base64": "x"}])
good = st.fixed_dictionaries(
    {"body": text | st.just({"base64": "AAE="}), "delay": st.sampled_from(["0ms", "5s", "300d"])},
    optional={
        "id": st.text("abcdefgh-", min_size=1, max_size=12),
        "headers": st.dictionaries(st.sampled_from("abc"), text | st.integers(0, 9)),
        "key": text,
        "expires": st.sampled_from(["301d", "2020-01-01T00:00:00Z"]),
        "max_attempts": st.integers(1, 99),
    },
)
RUBBISH = [
    *(b"", b"# a remark", b"\0", b"\xff\xfe", b"\xef\xbb\xbf{}", b"null", b"[" * 5000),
    *(b'{"body": "\\ud800", "delay": "1s"}', b'{"body": "x", "delay": "1s", "delay": "2s"}'),
]


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """One line without its end: an envelope, one value that is odd, or some bytes that are."""
    fields: dict[str, Any] = draw(good)
    fields |= draw(st.dictionaries(st.sampled_from(NAMES.split()), value, max_size=1))
    line = json.dumps(fields, ensure_ascii=draw(st.booleans())).encode()
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(RUBBISH))
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(line)))
        line = line[:at] + draw(st.binary(max_size=3)) + line[at + draw(st.integers(0, 3)) :]
    return line.replace(b"\n", b" ")


def parsed(line: bytes) -> Envelope | None:
    """The envelope of a line; None for a remark, and for what is refused."""
    try:
        return None if is_empty(line) else parse_line(line)
    except EnvelopeError as error:
        return None if "expected" in str(error) else pytest.fail(str(error))


def test_lines_are_refused_by_number_or_stored_as_they_say(tmp_path: Path) -> None:
    found: list[tuple[bytes, Envelope | None]] = []

    @fuzz(0.2)
    @given(lines())
    def gather(line: bytes) -> None:
        found.append((line, parsed(line)))

    gather()
    url = f"embedded:{tmp_path / 'store'}"
    with embedded(url) as connection:
        command = Command(tmp_path, url, CONFIG)
        words = ("send", ROUTE, "-", "--jsonl", "--output", "json", "--rejects", "rejects")
        sent = command(*words, stdin=b"\n".join(line for line, _ in found) + b"\n")
        assert sent.code == 1, sent.err
        operator = Operator(load_config(command.file), connection)
        taken = [envelope for _, envelope in found if envelope is not None]
        of_envelopes = [each for each in sent.json_lines() if each["id"]]
        for envelope, receipt in zip(taken, of_envelopes, strict=True):
            if receipt["status"] == "accepted":
                shown = operator.show(ROUTE, receipt["id"])
                assert shown is not None
                for name in ("body", "key", "headers", "properties", "max_attempts"):
                    assert getattr(shown, name) == getattr(envelope, name)
    named = {int(number) for number in re.findall(r"^line (\d+): ", sent.err, re.MULTILINE)}
    kept = (tmp_path / "rejects").read_bytes()
    for number, (line, given_envelope) in enumerate(found, 1):
        assert given_envelope is not None or is_empty(line) or number in named
        if number in named:
            assert b"# line %d: " % number in kept
            assert b"\n" + line + b"\n" in kept
