"""Settings of Python's interpreter, for processes that duebridge owns: they hold for all of it."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Python's default of 700 allocations runs it every few messages or requests, and finds no garbage.
THRESHOLDS = (50_000, 20, 50)
SWITCH_S = 0.0005


@contextmanager
def tuned_gc() -> Iterator[None]:
    """Run the cyclic garbage collector less often; reference counting is unaffected."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def short_turns() -> Iterator[None]:
    """Have a thread that computes let others go on after half a millisecond.

    An intake reads one batch while another thread stores the one before, two milliseconds a call.
    With Python's five that thread waits longer for its turn than for the store.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
