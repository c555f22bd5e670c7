"""How often a worker process looks for garbage in cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Python's own 700 are allocated with every few messages of a batch, none of which is garbage yet.
THRESHOLDS = (50_000, 20, 50)


@contextmanager
def relaxed_collector() -> Iterator[None]:
    """Let the collector of cycles run less often; what refers to no cycle is freed as ever.

    For a process of duebridge's own: it is a setting of the whole interpreter.
    """
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
