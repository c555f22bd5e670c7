"""Gives a forked child locks of its own: the threads that held its parent's do not exist there."""

import os
import threading
from typing import Any, Protocol
from weakref import WeakSet

_CLIENTS_LOCKS = ("_lock", "_fork_lock", "_initialization_lock")  # as redis-py names them


class HasLocks(Protocol):
    """An object whose locks a forked child inherits, with nobody there to release them."""

    def after_fork(self) -> None:
        """Make new locks: called in the child, of whose threads this is the only one."""


_owners: WeakSet[HasLocks] = WeakSet()


def renew_after_fork(owner: HasLocks) -> None:
    """Call `owner.after_fork()` in each forked child, as long as it lives."""
    _owners.add(owner)


def renew_locks(*owners: Any) -> None:
    """Make new locks of parts of redis-py's clients; it makes none for a forked child."""
    for owner in owners:
        for name in _CLIENTS_LOCKS:
            if hasattr(owner, name):
                setattr(owner, name, threading.RLock())


def renew_pool_locks(pool: Any) -> None:
    """Make new locks of a pool of connections."""
    renew_locks(pool, getattr(pool, "_event_dispatcher", None))


def _renew_all() -> None:
    for owner in list(_owners):
        owner.after_fork()


os.register_at_fork(after_in_child=_renew_all)
