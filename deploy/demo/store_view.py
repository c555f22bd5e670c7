"""What the delay store has of each route: for the board, the end of the show, the verdict."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from duebridge.config.load import load_config, resolved_store_url
from duebridge.store.connection import open_connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.poll import Poll
from duebridge.store.route_store import RouteStore

STATES = ("pending", "ready", "suspect", "unack", "retry", "dead")
PAGE = 1000


class StoreView:
    """Looks at every route of a configuration, all of one shard; changes nothing."""

    def __init__(self, path: Path) -> None:
        config = load_config(path)
        self._connection = open_connection(resolved_store_url(config))
        self._stores = {
            name: RouteStore(self._connection, config.store.namespace, route).shards[0]
            for name, route in config.routes.items()
        }

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[Self]:
        """Give a view; its connection is closed in the end."""
        view = cls(path)
        try:
            yield view
        finally:
            view._connection.close()

    def stores(self) -> list[DelayStore]:
        """Return the store of every route."""
        return [*self._stores.values()]

    def poll(self, route: str) -> Poll:
        """Return how many envelopes of a route are in each state."""
        return self._stores[route].next()

    @property
    def is_empty(self) -> bool:
        """Whether every envelope was delivered, cancelled, or sent on as a dead letter."""
        return not any(getattr(self.poll(route), each) for route in self._stores for each in STATES)

    def held(self, route: str) -> dict[str, str]:
        """Return what is left of a route, id to state."""
        store = self._stores[route]
        return {
            entry.id: state for state in STATES for entry in store.list(state, limit=PAGE).entries
        }
