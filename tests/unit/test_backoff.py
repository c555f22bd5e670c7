"""How long a retry waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duebridge.config.models import RetryPolicy
from duebridge.worker.backoff import retry_delay_ms

MAX_MS = 300_000


def never_random() -> float:
    raise AssertionError("asked for a random number without need")


@pytest.mark.parametrize(
    ("retries", "delay_ms"),
    [(0, 1_000), (1, 2_000), (2, 4_000), (8, 256_000), (9, MAX_MS), (10_000, MAX_MS)],
)
def test_delay_exponential_doubles_up_to_max(retries: int, delay_ms: int) -> None:
    policy = RetryPolicy(initial="1s", max="5m", jitter="none")
    assert retry_delay_ms(policy, retries, never_random) == delay_ms


@pytest.mark.parametrize("retries", [0, 1, 7, 10_000])
def test_delay_fixed_stays_the_same_without_jitter(retries: int) -> None:
    policy = RetryPolicy(backoff="fixed", initial="30s")
    assert retry_delay_ms(policy, retries, never_random) == 30_000


def test_delay_fixed_ignores_the_default_max() -> None:
    policy = RetryPolicy(backoff="fixed", initial="1h")
    assert retry_delay_ms(policy, 0, never_random) == 3_600_000


def test_delay_initial_beyond_max_is_max() -> None:
    policy = RetryPolicy(initial="1h", max="5m", jitter="none")
    assert retry_delay_ms(policy, 0, never_random) == MAX_MS


@pytest.mark.parametrize(("chance", "delay_ms"), [(0.0, 0), (0.25, 1_000), (0.5, 2_000)])
def test_delay_full_jitter_takes_a_share_of_the_whole(chance: float, delay_ms: int) -> None:
    policy = RetryPolicy(initial="1s", max="5m", jitter="full")
    assert retry_delay_ms(policy, 2, lambda: chance) == delay_ms


@given(st.integers(0, 10**6), st.floats(0, 1, exclude_max=True))
def test_delay_full_jitter_is_never_beyond_max(retries: int, chance: float) -> None:
    policy = RetryPolicy(initial="1s", max="5m", jitter="full")
    assert 0 <= retry_delay_ms(policy, retries, lambda: chance) <= MAX_MS
