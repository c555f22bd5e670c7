"""The user whom the journal names for the store calls of a thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MOST_ACTOR = 64  # characters of a name

_actor: ContextVar[str | None] = ContextVar("actor", default=None)


@contextmanager
def use_actor(name: str) -> Iterator[None]:
    """Have the journal name this user for calls of this thread; empty for a program."""
    before = _actor.set(name)
    try:
        yield
    finally:
        _actor.reset(before)


def current_actor(default: str) -> str:
    """Return the user whom the journal names for calls of this thread, `default` if none is set."""
    actor = _actor.get()
    return default if actor is None else actor
