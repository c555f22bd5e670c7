"""Connections of tasks: one for each Python worker and store, kept for its next task.

A Python worker of Spark runs one task at a time, so an executor has at most as many connections as
cores. Spark ends a worker that had nothing to do for a minute, and its connection with it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from duebridge.store.server.connection import Connection, opened_connection

_kept: dict[str, tuple[Connection, ExitStack]] = {}  # by url


@contextmanager
def task_connection(url: str, *, is_kept: bool) -> Iterator[Connection]:
    """Give a connection to a task, and keep it for the next one of this process if told to.

    None is kept after an error. Raises as `opened_connection`.
    """
    if not is_kept:
        with opened_connection(url) as connection:
            yield connection
        return
    connection, opened = _kept.pop(url) if url in _kept else _open(url)
    try:
        yield connection
    except BaseException:
        opened.close()
        raise
    _kept[url] = connection, opened


def _open(url: str) -> tuple[Connection, ExitStack]:
    opened = ExitStack()
    return opened.enter_context(opened_connection(url)), opened
