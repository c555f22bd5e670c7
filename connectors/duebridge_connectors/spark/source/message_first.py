"""Errors of Spark's Python processes: the message first, and where it was raised after it.

Spark shows a Python error as its traceback, whose last line is the message. This imports nothing,
since every session that discovers Python data sources loads it.
"""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

_WORKER = "PYTHON_WORKER_FACTORY_SECRET"  # set by Spark in its Python processes
_HIDE = "SPARK_HIDE_TRACEBACK"
_TITLE = "Traceback (most recent call last):\n"


@contextmanager
def message_first() -> Iterator[None]:
    """Let Spark show the message of an error of the block before its traceback.

    The setting is that of this process alone, which Spark ends after an error.
    """
    try:
        yield
    except Exception as error:
        if _WORKER in os.environ and _HIDE not in os.environ:
            os.environ[_HIDE] = "1"
            error.add_note(_TITLE + "".join(traceback.format_tb(error.__traceback__)))
        raise
