"""Durations and instants are exact, and what a retry waits."""

import doctest
import math
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duebridge import durations
from duebridge.config.models import RetryPolicy
from duebridge.durations import MAX_MS, MS_PER_UNIT, format_ms, parse_duration_ms, parse_instant_ms
from duebridge.errors import EnvelopeError
from duebridge.worker.backoff import retry_delay_ms

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_parse_instant_of_a_missing_one_of_pandas_is_refused() -> None:
    with pytest.raises(EnvelopeError, match=r"^at: expected an aware datetime; got NaT$"):
        parse_instant_ms(pd.NaT)


def test_doctests_of_durations_hold() -> None:
    failed, tried = doctest.testmod(durations)
    assert (failed, tried > 0) == (0, True)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0s", 0),
        ("500ms", 500),
        ("2.5s", 2500),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("3d", 259_200_000),
        (" 1s ", 1000),
        ("007s", 7000),
        ("0.1ms", 1),
        ("1.0001s", 1001),
        ("0.3s", 300),
        ("4.35s", 4350),
        ("1.1d", 95_040_000),
        ("1h30m", 5_400_000),
        ("2w", 1_209_600_000),
        ("1w2d", 777_600_000),
        ("1m500ms", 60_500),
        ("1.5h30m", 7_200_000),
        (timedelta(seconds=2.5), 2500),
        (timedelta(microseconds=1), 1),
        (timedelta(milliseconds=1, microseconds=1), 2),
        (timedelta(0), 0),
        (timedelta(days=365), 31_536_000_000),
    ],
)
def test_parse_duration_of_a_readable_one_gives_ms_rounded_up(text: object, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize(
    "value",
    [
        "", "5", "s", "5 s", "5S", "5sec", "-5s", "+5s", "1e3s", ".5s", "5.s", "30m1h", "5s\x00",
        "1h1h", "1h 30m", "5ms1s", "1h30", "h", "99999999w1d", "\u0665s", "nan", "infs",
        b"5s", None, [], ("5s",), timedelta(microseconds=-1),
        timedelta.max, "99999999999d", "1" * 5000 + "s", "0." + "1" * 5000 + "s",
    ],
)  # fmt: skip
def test_parse_duration_of_anything_else_is_refused_with_what_was_expected(value: object) -> None:
    with pytest.raises(EnvelopeError, match=r"delay: expected .*; got "):
        parse_duration_ms(value)


@pytest.mark.parametrize("value", [0, 5, -1, 2.5, True])
def test_parse_duration_of_a_bare_number_asks_for_its_unit(value: object) -> None:
    with pytest.raises(EnvelopeError, match=r"got .* \(seconds or milliseconds\?\)"):
        parse_duration_ms(value)


@given(st.integers(0, 10**9), st.sampled_from(list(MS_PER_UNIT)))
def test_parse_duration_of_whole_numbers_is_exact(number: int, unit: str) -> None:
    ms = number * MS_PER_UNIT[unit]
    if ms <= MAX_MS:
        assert parse_duration_ms(f"{number}{unit}") == ms


@given(st.integers(0, 10**6), st.text("0123456789", min_size=1, max_size=12))
def test_parse_duration_of_decimals_is_never_early_and_never_a_ms_late(
    whole: int, fraction: str
) -> None:
    exact = Fraction(f"{whole}.{fraction}") * 1000
    ms = parse_duration_ms(f"{whole}.{fraction}s")
    assert exact <= ms < exact + 1


@given(st.integers(0, 10**17))
def test_parse_duration_of_any_timedelta_is_never_early(microseconds: int) -> None:
    assert parse_duration_ms(timedelta(microseconds=microseconds)) == -(-microseconds // 1000)


@given(st.integers(0, MAX_MS))
def test_format_ms_can_be_read_back(ms: int) -> None:
    assert parse_duration_ms(format_ms(ms)) == ms


@pytest.mark.parametrize(
    ("at", "ms"),
    [
        (0, 0),
        (10**9 - 1, 10**9 - 1),
        (10**10, 10**10),
        (1_767_225_600_000, 1_767_225_600_000),
        (datetime(2026, 1, 1, tzinfo=UTC), 1_767_225_600_000),
        (datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 1_767_225_600_000),
        (datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC), 1_767_225_600_001),
        (datetime(2026, 1, 1, 0, 0, 0, 999_001, tzinfo=UTC), 1_767_225_601_000),
    ],
)
def test_parse_instant_of_a_readable_one_gives_epoch_ms_rounded_up(at: object, ms: int) -> None:
    assert parse_instant_ms(at) == ms


@pytest.mark.parametrize(
    "at",
    [
        datetime(2026, 1, 1),
        "2026-01-01T00:00:00Z", "15m", 1.5, math.inf, True, None, -1, MAX_MS + 1,
        datetime(1969, 12, 31, tzinfo=UTC),
        timedelta(1),
    ],
)  # fmt: skip
def test_parse_instant_of_anything_else_is_refused_with_what_was_expected(at: object) -> None:
    with pytest.raises(EnvelopeError, match=r"at: expected .*; got "):
        parse_instant_ms(at)


@pytest.mark.parametrize("seconds", [10**9, 1_767_225_600, 10**10 - 1])
def test_parse_instant_of_what_looks_like_seconds_says_so(seconds: int) -> None:
    said = f"^expires: expected epoch milliseconds; got {seconds}, which looks like seconds$"
    with pytest.raises(EnvelopeError, match=said):
        parse_instant_ms(seconds, "expires")
    assert parse_instant_ms(datetime(1970, 2, 1, tzinfo=UTC)) == 2_678_400_000


@pytest.mark.parametrize(
    "date", [20_261_231, 19_700_101, 202_612_312_359, 20_261_231_090_000, 20_280_229_235_959]
)
def test_parse_instant_of_what_looks_like_a_date_says_so(date: int) -> None:
    said = f"^at: expected epoch milliseconds; got {date}, which looks like a date$"
    with pytest.raises(EnvelopeError, match=said):
        parse_instant_ms(date)


@pytest.mark.parametrize(
    "ms",
    [0, 5, 18_991_231, 20_261_331, 20_261_200, 20_260_032, 202_612_312_400, 1_767_225_600_000],
)
def test_parse_instant_of_what_is_no_date_is_epoch_ms(ms: int) -> None:
    assert parse_instant_ms(ms) == ms


@given(st.datetimes(datetime(1970, 1, 1), datetime(6000, 1, 1), timezones=st.just(UTC)))
def test_parse_instant_of_any_datetime_is_never_early(at: datetime) -> None:
    microseconds = (at - EPOCH) // timedelta(microseconds=1)
    assert parse_instant_ms(at) == -(-microseconds // 1000)


FIVE_MINUTES_MS = 300_000


def never_random() -> float:
    raise AssertionError("asked for a random number without need")


PLAIN = RetryPolicy(initial="1s", max="5m", jitter="none")
FIXED = RetryPolicy(backoff="fixed", initial="1h")  # beyond the default max


@pytest.mark.parametrize(
    ("policy", "retries", "delay_ms"),
    [
        *[(PLAIN, 0, 1_000), (PLAIN, 1, 2_000), (PLAIN, 2, 4_000), (PLAIN, 8, 256_000)],
        *[(PLAIN, 9, FIVE_MINUTES_MS), (PLAIN, 10_000, FIVE_MINUTES_MS)],
        *[(FIXED, 0, 3_600_000), (FIXED, 7, 3_600_000), (FIXED, 10_000, 3_600_000)],
        (RetryPolicy(initial="5m", max="5m", jitter="none"), 0, FIVE_MINUTES_MS),
    ],
)
def test_delay_doubles_up_to_max_or_stays_fixed(
    policy: RetryPolicy, retries: int, delay_ms: int
) -> None:
    assert retry_delay_ms(policy, retries, never_random) == delay_ms


@pytest.mark.parametrize(("chance", "delay_ms"), [(0.0, 0), (0.25, 1_000), (0.5, 2_000)])
def test_delay_full_jitter_takes_a_share_of_the_whole(chance: float, delay_ms: int) -> None:
    policy = RetryPolicy(initial="1s", max="5m", jitter="full")
    assert retry_delay_ms(policy, 2, lambda: chance) == delay_ms


@given(st.integers(0, 10**6), st.floats(0, 1, exclude_max=True))
def test_delay_full_jitter_is_never_beyond_max(retries: int, chance: float) -> None:
    policy = RetryPolicy(initial="1s", max="5m", jitter="full")
    assert 0 <= retry_delay_ms(policy, retries, lambda: chance) <= FIVE_MINUTES_MS
