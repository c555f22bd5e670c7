"""The console's parts: fields of a form, what pages show of bytes, the field of a dry run."""

import base64
import doctest
import secrets

import pytest

from duebridge.console import words
from duebridge.console.forms import MOST_BYTES as MOST_OF_A_FORM
from duebridge.console.forms import due_at
from duebridge.console.pages.dead import MOST_LOOKED
from duebridge.console.previews import MOST_BYTES, MOST_VALUE, preview, readable_value
from duebridge.console.seen import MARK_BYTES, Seen
from duebridge.durations import parse_instant_ms
from duebridge.envelope import SHORT_BYTES
from duebridge.errors import EnvelopeError

NINE_MS = 1_769_850_000_000


@pytest.mark.parametrize(
    ("text", "after_ms"),
    [
        ("2026-01-31T09:00", 0),
        ("2026-01-31T09:00:00", 0),
        (" 2026-01-31t10:00:00+01:00 ", 0),
        ("2026-01-31T09:00:00.1230", 123),
        ("2026-01-31T09:00:00.1231", 124),
        ("2026-01-31T09:00:00.123000001Z", 124),
        ("2026-01-31", -9 * 3_600_000),
    ],
)
def test_due_at_is_in_utc_and_rounds_up(text: str, after_ms: int) -> None:
    assert parse_instant_ms(due_at({"at": text}, "at")) == NINE_MS + after_ms


def test_due_at_of_an_empty_field_is_none() -> None:
    assert due_at({"at": " "}, "at") is None
    assert due_at({}, "at") is None


@pytest.mark.parametrize("text", ["tomorrow", "2026-13-01T00:00", "1969-12-31T23:59", "9:00"])
def test_due_at_that_is_no_instant_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(EnvelopeError, match=r"^at: expected .*; got "):
        due_at({"at": text}, "at")


def test_doctests_of_words_hold() -> None:
    failed, tried = doctest.testmod(words)
    assert tried > 5
    assert failed == 0


@pytest.mark.parametrize(
    ("body", "form", "text"),
    [
        (None, "none", ""),
        (b"", "text", ""),
        (b"plain", "text", "plain"),
        ("ünïcödé 👋".encode(), "text", "ünïcödé 👋"),
        (b'{"n": 1.10, "big": 12345678901234567890}', "json", '"n": 1.10,'),
        (b'{"n": 1.10, "big": 12345678901234567890}', "json", "12345678901234567890"),
        (b"{broken", "text", "{broken"),
        (b"[" * 5_000 + b"]" * 5_000, "text", "[[["),
        (b"\x00text", "hex", "00000000  00 74 65 78 74"),
        (b"caf\xe9", "hex", "63 61 66 e9"),
        (b"\x1b[31mred", "hex", "1b 5b"),
    ],
)
def test_preview_shows_what_the_body_holds(body: bytes | None, form: str, text: str) -> None:
    found = preview(body)
    assert found.form == form
    assert text in found.text


@pytest.mark.parametrize("unit", [b"x", "ü".encode(), "👋".encode(), b"\xff"])
def test_preview_of_any_length_is_bounded(unit: bytes) -> None:
    for size in range(MOST_BYTES - 5, MOST_BYTES + 6):
        found = preview((b"a" + unit * (MOST_BYTES + 8))[:size])
        assert found.size_bytes == size
        assert len(found.text.encode()) <= max(MOST_BYTES, 10_000)
        assert found.shown_bytes <= MOST_BYTES


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (7, "7"),
        ("text", "text"),
        (b"text", "text"),
        (b"\xff\x00", "0xff00"),
        ("x" * (MOST_VALUE + 1), f"{'x' * MOST_VALUE}… (2,001 characters)"),
    ],
)
def test_value_is_shown_as_readable_text(value: object, text: str) -> None:
    assert readable_value(value) == text


def test_field_of_the_longest_ids_of_a_look_fits_into_a_form() -> None:
    ids = [f"{number:04}".ljust(SHORT_BYTES, "x") for number in range(MOST_LOOKED)]
    seen = Seen({each: secrets.token_bytes(MARK_BYTES) for each in ids})
    assert Seen.read(seen.field) == seen
    assert [*Seen.read(seen.field).marks] == ids
    assert len(seen.field) < 0.75 * MOST_OF_A_FORM


def test_field_has_an_id_that_is_no_text() -> None:
    seen = Seen({"\udcff": b"mark"})
    assert Seen.read(seen.field) == seen


@pytest.mark.parametrize(
    "text", ["", "x", "é", base64.b64encode(b"no field").decode(), Seen({"a": b"m"}).field[:-4]]
)
def test_read_of_another_field_is_refused(text: str) -> None:
    with pytest.raises(EnvelopeError, match="the field of a dry run"):
        Seen.read(text)
