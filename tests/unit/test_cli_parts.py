"""The parts of the command line: lines, instants, rates, sizes and exit codes."""

import errno
import inspect
import io
import os
import pickle
import re
import threading
from datetime import UTC, datetime

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from duebridge import errors, jsonl
from duebridge.cli import jsonl as cli_jsonl
from duebridge.cli.commands.dead.settling import RateLimiter, parse_rate
from duebridge.cli.commands.doctor import exit_code_of
from duebridge.cli.exits import exit_code, finish, run_guarded
from duebridge.cli.jsonl import Line, read_batches
from duebridge.config.fields import parse_size_bytes
from duebridge.durations import format_instant, parse_instant_ms
from duebridge.envelope import HeaderValue
from duebridge.errors import (
    BridgeError,
    ConfigError,
    EnvelopeError,
    Indeterminate,
    JobFailed,
    StoreError,
    StoreUnavailable,
)
from duebridge.instants import parse_ago, parse_at, parse_expires, parse_from_now
from duebridge.jsonl import Base64, is_empty, json_value, parse_line
from duebridge.ports.checks import FindingSubject, failure, ok, warning
from duebridge.ports.publisher import BrokerUnavailable


class Chunks(io.RawIOBase):
    """A stream that gives one chunk a read, as a pipe does."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = [chunk for chunk in chunks if chunk]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = self._chunks.pop(0) if self._chunks else b""
        buffer[: len(chunk)] = chunk
        return len(chunk)


@given(st.lists(st.binary(max_size=20) | st.just(b"\n"), max_size=30), st.integers(1, 5))
def test_read_batches_of_any_chunks_gives_every_line_once(chunks: list[bytes], size: int) -> None:
    batches = list(read_batches(io.BufferedReader(Chunks(list(chunks))), size))
    whole = b"".join(chunks).split(b"\n")
    if not whole[-1]:
        whole.pop()
    assert [line for batch in batches for line in batch] == [
        Line(number, text) for number, text in enumerate(whole, 1)
    ]
    assert all(1 <= len(batch) <= size for batch in batches)


def test_read_batches_gives_a_line_before_the_stream_ends() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        os.write(writing, b"one\ntw")
        batches = read_batches(stream, 500)
        assert next(batches) == [Line(1, b"one")]
        threading.Thread(target=lambda: (os.write(writing, b"o\n"), os.close(writing))).start()
        assert next(batches) == [Line(2, b"two")]
        assert list(batches) == []


def test_read_batches_too_long_line_is_cut_and_then_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (jsonl, cli_jsonl):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 10)
    stream = io.BufferedReader(Chunks([b"x" * 50, b"y" * 50, b"\nshort\n"]))
    long, short = (line for batch in read_batches(stream, 500) for line in batch)
    assert (long.number, short) == (1, Line(2, b"short"))
    with pytest.raises(EnvelopeError, match="at most 10 bytes"):
        parse_line(long.text)


@given(st.binary(max_size=60))
def test_parse_line_of_any_bytes_gives_an_envelope_or_a_clear_error(text: bytes) -> None:
    with pytest.raises(EnvelopeError):
        parse_line(text)


@pytest.mark.parametrize("field", ["body", "json", "headers", "other"])
def test_parse_line_nested_too_deep_is_refused(field: str) -> None:
    text = b'{"delay": "1s", "%s": %s}' % (field.encode(), b"[" * 9_000 + b"]" * 9_000)
    with pytest.raises(EnvelopeError, match="expected"):
        parse_line(text)


@pytest.mark.parametrize(
    ("field", "meant"),
    [("dealy", "delay"), ("header", "headers"), ("base64", "body_base64"), ("prio", "priority")],
)
def test_parse_line_with_a_misspelt_field_names_the_close_one(field: str, meant: str) -> None:
    with pytest.raises(EnvelopeError) as refused:
        parse_line(b'{"%s": 5}' % field.encode())
    assert str(refused.value) == f"unknown field {field!r}, did you mean {meant}?"


@pytest.mark.parametrize(
    ("field", "given", "said"),
    [
        ("at", "1e3", "at: expected RFC 3339 with an offset, or epoch milliseconds; got 1e3"),
        ("at", "1e999", "; got 1e999"),
        ("at", "true", "; got true"),
        ("at", "9" * 5000, "; got '" + "9" * 199 + "..."),
        ("at", '"9999-12-31T23:59:59Z"', "at: expected epoch ms between 0 and"),
        ("at", '"9999-12-31T23:59:59Z"', "; got '9999-12-31T23:59:59Z'"),
        ("expires", '"1960-01-01T00:00:00Z"', "; got '1960-01-01T00:00:00Z'"),
        ("expires", "1.5", 'expires: expected a duration such as "15m", RFC 3339 with an offset'),
        ("headers", "null", "headers: expected an object or a list of pairs"),
        ("headers", '{"a": 1.5}', '; got {"a": 1.5}'),
        ("headers", '[["a"]]', '; got [["a"]]'),
        ("max_attempts", '"3"', 'max_attempts: expected a whole number; got "3"'),
        ("priority", '"high"', 'priority: expected a whole number; got "high"'),
        ("target", "{}", "target: expected an object with broker and its other fields"),
        ("target", '{"broker": 1}', '; got {"broker": 1}'),
        ("id", "5", "id: expected text; got 5"),
        ("key", '{"base64": 1}', 'key: expected text or {"base64": "..."}; got {"base64": 1}'),
        ("content_type", '["\u009b31m"]', "content_type: expected text; got '[\"\\x9b31m\"]'"),
    ],
)
def test_parse_line_with_a_field_of_another_type_quotes_it_as_given(
    field: str, given: str, said: str
) -> None:
    line = f'{{"body": "x", "{field}": {given}}}'
    if field != "at":
        line = line.replace("{", '{"delay": "1h", ', 1)
    with pytest.raises(EnvelopeError) as refused:
        parse_line(line.encode())
    assert said in str(refused.value)
    assert not re.search("Expected|datetime|None|True", str(refused.value))


def test_parse_line_with_an_unknown_field_names_all_fields() -> None:
    with pytest.raises(EnvelopeError, match=r"unknown field 'x': expected one of .*body_base64"):
        parse_line(b'{"body": "y", "x": 1}')


@pytest.mark.parametrize("text", [b"", b"  \t", b"# {}", b"  # x", b"\r"])
def test_is_empty_of_a_blank_or_a_remark_is_true(text: bytes) -> None:
    assert is_empty(text)
    assert not is_empty(b'{"body": "#"}')


@pytest.mark.parametrize(
    ("value", "shown"),
    [(b"x", "x"), (b"\xff", Base64("/w==")), ("x", "x"), (5, 5), (True, True), (None, None)],
)
def test_json_value_is_text_where_it_can_be(value: HeaderValue, shown: object) -> None:
    assert json_value(value) == shown


NINE = datetime(2026, 1, 31, 9, tzinfo=UTC)
NINE_MS = 1_769_850_000_000


@pytest.mark.parametrize(
    "text",
    ["2026-01-31T09:00:00Z", "2026-01-31t09:00:00z", "2026-01-31T10:00:00+01:00",
     "2026-01-31 09:00:00.000-00:00", "1769850000000", NINE_MS],
)  # fmt: skip
def test_parse_at_form_is_that_instant(text: str | int) -> None:
    assert parse_at(text) == NINE


@pytest.mark.parametrize(
    ("fraction", "ms"),
    [(".123000999", 124), (".1230000001", 124), (",123000999", 124), (".999999999", 1000),
     (".123000000000", 123), (".123", 123), (".122000001", 123)],
)  # fmt: skip
def test_parse_at_finer_than_a_microsecond_rounds_up(fraction: str, ms: int) -> None:
    for zone, hour in (("Z", 9), ("+01:00", 10), ("-01:00", 8)):
        at = parse_at(f"2026-01-31T{hour:02}:00:00{fraction}{zone}")
        assert parse_instant_ms(at) == NINE_MS + ms


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-01-31", "2026-01-31T09:00:00", "-5", "1.5", "1769850000", "9" * 40, "٣",
     "9999-12-31T23:59:59.9999999Z"],
)  # fmt: skip
def test_parse_at_anything_else_is_refused(text: str) -> None:
    with pytest.raises(EnvelopeError, match="--at: expected"):
        parse_at(text)


def test_parse_expires_duration_is_left_as_it_is_and_instant_is_read() -> None:
    assert parse_expires("90m") == "90m"
    assert parse_expires("2026-01-31T09:00:00Z") == NINE
    assert parse_expires(NINE_MS) == NINE


def test_format_instant_of_any_number_is_shown() -> None:
    assert format_instant(NINE_MS) == "2026-01-31T09:00:00.000Z"
    assert format_instant(2**47).startswith("6429-")
    assert format_instant(-(2**63)) == "-9223372036854775808 ms"
    assert format_instant(2**63) == "9223372036854775808 ms"


def test_parse_ago_and_from_now_count_from_the_given_now_and_read_instants() -> None:
    assert parse_ago("90m", "--since").at_ms(NINE_MS) == NINE_MS - 5_400_000
    assert parse_from_now("90m", "--due-before").at_ms(NINE_MS) == NINE_MS + 5_400_000
    assert parse_ago("90m", "--since").at_ms(5) == 0
    for parse in (parse_ago, parse_from_now):
        assert parse("2026-01-31T09:00:00Z", "--since").at_ms(5) == NINE_MS
        with pytest.raises(EnvelopeError, match="--since: expected a duration"):
            parse("-5m", "--since")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, span: float) -> None:
        assert span > 0
        self.now += span


@pytest.mark.parametrize(("rate", "size"), [(None, 100), (1, 1), (5, 1), (50, 5), (100_000, 100)])
def test_batch_size_of_a_rate_is_a_tenth_of_a_second(rate: int | None, size: int) -> None:
    assert RateLimiter(rate).batch_size(100) == size


def test_wait_lets_a_rate_pass_no_burst_after_a_pause_and_all_without_a_rate() -> None:
    clock = Clock()
    pacer = RateLimiter(50, clock, clock.sleep)
    for _ in range(21):
        pacer.wait(5)
    assert clock.now == pytest.approx(102.0)
    clock.now += 60
    pacer.wait(5)
    pacer.wait(5)
    assert clock.now == pytest.approx(162.1)
    RateLimiter(None, clock, clock.sleep).wait(10**6)
    assert clock.now == pytest.approx(162.1)


@pytest.mark.parametrize("text", ["5", "0/s", "-1/s", "5/m", "1.5/s", "", "/s"])
def test_parse_rate_of_anything_else_is_refused(text: str) -> None:
    with pytest.raises(EnvelopeError, match="--rate: expected a whole number a second"):
        parse_rate(text)


def app_that_raises(error: Exception) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise error

    return app


@pytest.mark.parametrize(("is_yes", "code"), [(True, 0), (False, 1), (None, 5)])
def test_finish_with_an_answer_that_is_not_known_is_neither_yes_nor_no(
    is_yes: bool | None, code: int
) -> None:
    with pytest.raises(typer.Exit) as ended:
        finish(is_yes=is_yes)
    assert ended.value.exit_code == code


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ConfigError, 2), (EnvelopeError, 2), (StoreError, 3), (BrokerUnavailable, 4), (JobFailed, 1)],
)
def test_exit_code_of_an_error_is_its_class_and_of_every_subclass(
    kind: type[Exception], code: int
) -> None:
    for each in (kind, *kind.__subclasses__()):
        assert exit_code(each.__new__(each, "why")) == code


def test_exit_code_of_every_error_of_the_product_is_known() -> None:
    defined = [each for _, each in inspect.getmembers(errors, inspect.isclass)]
    ours = [each for each in defined if issubclass(each, BridgeError) and each is not BridgeError]
    assert {exit_code(each("why")) for each in ours} == {1, 2, 3}


def test_store_unavailable_carries_its_ids_through_a_pickle() -> None:
    away = StoreUnavailable("away").about(["a", "b", "c", "d"])
    sent = pickle.loads(pickle.dumps(away))  # noqa: S301 - ours
    assert str(sent) == str(away) == "away; no answer for 4 ids: 'a', 'b', 'c', ..."
    assert (sent.ids, StoreUnavailable("away").ids) == (("a", "b", "c", "d"), ())


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (StoreUnavailable("away", ["a", "b"]), 3, "duebridge: away; no answer for 2 ids: 'a', 'b'"),
        (
            StoreUnavailable("away", ["a"]),
            3,
            "duebridge: away; no answer for id 'a'; whether it was done is unknown: repeat the"
            " command with this id",
        ),
        (
            Indeterminate("0 of 2", ["a"]),
            3,
            "duebridge: 0 of 2; not confirmed: id 'a'; repeat the command with this id",
        ),
        (StoreError("two\nlines"), 3, "duebridge: two\\nlines"),
        (BrokerUnavailable("no answer"), 4, "duebridge: no answer"),
        (OSError(errno.ENOSPC, "No space left", "out.txt"), 2, "duebridge: out.txt: No space left"),
        (
            OSError("Generic S3 error\n  503 Slow Down\n"),
            2,
            "duebridge: Generic S3 error 503 Slow Down",
        ),
        (OSError(), 2, "duebridge: OSError"),
    ],
)
def test_run_guarded_error_is_one_line_on_stderr(
    error: Exception,
    code: int,
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["duebridge"])
    assert run_guarded(app_that_raises(error)) == code
    assert capsys.readouterr() == ("", f"{line}\n")


def test_run_guarded_defect_names_its_place_and_quotes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["duebridge"])
    assert run_guarded(app_that_raises(KeyError("canary"))) == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert "KeyError at test_cli_parts.py:" in err
    assert "canary" not in err


@pytest.mark.parametrize(
    ("about", "code"),
    [
        (list(FindingSubject), 2),
        ([FindingSubject.ROUTE, FindingSubject.BROKER, FindingSubject.STORE], 3),
        ([FindingSubject.ROUTE, FindingSubject.BROKER], 4),
        ([FindingSubject.ROUTE], 1),
        ([], 0),
    ],
)
def test_exit_code_of_several_failures_is_that_of_the_first_in_order(
    about: list[FindingSubject], code: int
) -> None:
    well = [ok(FindingSubject.STORE, "store", "fit"), warning(FindingSubject.BROKER, "b", "w", "r")]
    assert exit_code_of([*well, *(failure(each, "p", "f", "r") for each in about)]) == code


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0),
        ("512B", 512),
        ("1KiB", 1024),
        ("256KiB", 262_144),
        (" 64MiB ", 67_108_864),
        ("2GiB", 2_147_483_648),
    ],
)
def test_parse_size_with_unit_gives_bytes(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    "value", [1024, 1.5, True, None, "", "1024", "-1B", "1.5KiB", "1KB", "1 KiB", "1kib", "KiB"]
)
def test_parse_size_without_unit_says_what_is_expected(value: object) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        parse_size_bytes(value)
    expected = 'expected a size such as "512B", "256KiB", "64MiB"'
    assert str(caught.value) == f"{expected}; got {value!r}"
