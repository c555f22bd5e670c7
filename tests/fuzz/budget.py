"""How many cases of a kind are drawn, from which seed, and how many there were.

DUEBRIDGE_FUZZ is the number of each kind, DUEBRIDGE_FUZZ_SEED what they are drawn from. With
DUEBRIDGE_FUZZ_SHRINK=1 a failure is made as small as it gets, which may take minutes.
"""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings

CASES = int(os.environ.get("DUEBRIDGE_FUZZ", "200"))
SEED = int(os.environ.get("DUEBRIDGE_FUZZ_SEED", "5"))
PHASES = list(Phase) if os.environ.get("DUEBRIDGE_FUZZ_SHRINK") else [Phase.generate]

drawn: Counter[str] = Counter()  # by kind; the tests count what they have gone through


def fuzz(share: float, of_each: int = 1) -> Callable[[Any], Any]:
    """Draw a share of the kind's cases, where each example holds `of_each` of them."""
    examples = max(1, round(CASES * share / of_each))
    rules = settings(
        max_examples=examples,
        deadline=None,
        database=None,  # the seed says it all
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    return lambda test: seed(SEED)(rules(test))
