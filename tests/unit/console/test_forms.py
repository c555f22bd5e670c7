"""What the fields of a form say: instants in UTC, never early where they say when."""

import pytest

from duebridge.console.forms import due_at
from duebridge.durations import parse_instant_ms
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
