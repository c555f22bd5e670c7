"""In whose name a thread calls the store, where a process serves several people."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_acting: ContextVar[str | None] = ContextVar("acting", default=None)


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Journal what this thread does in a person's name; empty for a program."""
    before = _acting.set(name)
    try:
        yield
    finally:
        _acting.reset(before)


def actor_or(usual: str) -> str:
    """Return in whose name this thread calls: the connection's `usual` one, unless it is named."""
    acting = _acting.get()
    return usual if acting is None else acting
