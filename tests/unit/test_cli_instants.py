"""Instants as they are typed."""

from datetime import UTC, datetime

import pytest

from duebridge.cli.instants import parse_ago, parse_at, parse_expires, parse_from_now
from duebridge.durations import format_instant
from duebridge.errors import EnvelopeError

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
    "text",
    ["", "now", "2026-01-31", "2026-01-31T09:00:00", "-5", "1.5", "1769850000", "9" * 40, "٣"],
)
def test_parse_at_anything_else_is_refused(text: str) -> None:
    with pytest.raises(EnvelopeError, match="--at: expected"):
        parse_at(text)


def test_parse_expires_duration_is_left_as_it_is_and_instant_is_read() -> None:
    assert parse_expires("90m") == "90m"
    assert parse_expires("2026-01-31T09:00:00Z") == NINE
    assert parse_expires(NINE_MS) == NINE


def test_format_instant_greatest_that_the_store_holds_is_shown() -> None:
    assert format_instant(NINE_MS) == "2026-01-31T09:00:00.000Z"
    assert format_instant(2**47).startswith("6429-")


def test_format_instant_of_damage_is_shown_as_it_is() -> None:
    assert format_instant(-(2**63)) == "-9223372036854775808 ms"
    assert format_instant(2**63) == "9223372036854775808 ms"


def test_parse_ago_and_from_now_count_from_the_given_now_and_read_instants() -> None:
    assert parse_ago("90m", "--since", NINE_MS) == NINE_MS - 5_400_000
    assert parse_from_now("90m", "--due-before", NINE_MS) == NINE_MS + 5_400_000
    assert parse_ago("90m", "--since", 5) == 0
    for parse in (parse_ago, parse_from_now):
        assert parse("2026-01-31T09:00:00Z", "--since", 5) == NINE_MS
        with pytest.raises(EnvelopeError, match="--since: expected a duration"):
            parse("-5m", "--since", NINE_MS)
