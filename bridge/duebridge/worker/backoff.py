"""Computes retry delays: fixed, or exponential back-off with full jitter. Pure functions.

Full jitter spreads the retries after an outage over the whole delay, so that they do not return
all at once (AWS Architecture Blog, "Exponential Backoff And Jitter").
"""

from collections.abc import Callable
from random import random

from duebridge.config.models import RetryPolicy

MAX_DOUBLINGS = 40  # any `initial` doubled this often exceeds any `max`


def retry_delay_ms(policy: RetryPolicy, retries: int, random: Callable[[], float] = random) -> int:
    """Return ms until the next attempt; `retries` counts previous retries of any cause.

    >>> policy = RetryPolicy(initial="1s", max="5m", jitter="none")
    >>> [retry_delay_ms(policy, retries) for retries in (0, 1, 2, 20)]
    [1000, 2000, 4000, 300000]
    """
    if policy.backoff == "fixed":
        return policy.initial
    delay_ms: int = min(policy.max, policy.initial * 2 ** min(retries, MAX_DOUBLINGS))
    if policy.jitter == "none":
        return delay_ms
    return round(delay_ms * random())
