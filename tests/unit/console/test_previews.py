"""What pages show of bytes, instants and figures."""

import doctest

import pytest

from duebridge.console import words
from duebridge.console.previews import MOST_BYTES, MOST_VALUE, preview, readable_value


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
