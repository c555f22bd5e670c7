"""Reads the cold envelopes of a route: rows of its files, corrected by the store's notes.

The core does not read the files itself: the entry point `duebridge.cold` names a reader per format.
"""

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Final, NamedTuple, Protocol

from duebridge.config.models import ColdTier, Config, Route
from duebridge.errors import ConfigError
from duebridge.receipt import Known
from duebridge.store.cold.notes import ColdNotes, Mark
from duebridge.store.due_window import ANY_TIME, DueWindow
from duebridge.store.routing import Registry, RouteStore
from duebridge.store.server.connection import Connection

COLD: Final = "cold"
FORM = "parquet"
_NONE = Mark("", "", "", 0, 0, 0)


class ColdRow(NamedTuple):
    """A row of a batch; instants in epoch ms, 0 if there is none."""

    id: str
    batch: str
    generation: int
    due_at_ms: int
    scheduled_at_ms: int
    expires_at_ms: int


class ColdReader(Protocol):
    """The function that the entry point names."""

    def __call__(
        self, tier: ColdTier, route: str, envelope_id: str, window: DueWindow
    ) -> Iterator[ColdRow]:
        """Yield the current rows of one id, or of all (''), due within `window`, earliest first.

        Raises `ConfigError` if the files cannot be read.
        """
        ...


class ColdRows:
    """The cold envelopes of a route. Methods raise `ConfigError` and `StoreError`."""

    def __init__(self, config: Config, connection: Connection, route: Route) -> None:
        self._route = route
        namespace = config.store.namespace
        known = Registry(connection, namespace).routes().get(route.name)
        shards = route.shards if known is None else known.shards
        self._connection = connection
        self._store = RouteStore(connection, namespace, route.name, shards)

    def get(self, id: str) -> Known | None:  # noqa: A002 - the public name of the field
        """Return the cold envelope of an id, None if there is none."""
        return next(self.walk(id=id), None)

    def walk(self, window: DueWindow = ANY_TIME, id: str = "") -> Iterator[Known]:  # noqa: A002
        """Yield the cold envelopes, ordered by the due instants in the files."""
        if self._route.cold_tier is None:
            return
        for row in _reader()(self._route.cold_tier, self._route.name, id, window):
            if (known := self._corrected(row)) is not None:
                yield known

    def _corrected(self, row: ColdRow) -> Known | None:
        """Return a row as hydrate will restore it; None if hydrate will not."""
        notes = ColdNotes(self._connection, self._store.of(row.id).shard)
        if notes.is_void(row.batch, row.id):
            return None
        mark = notes.tombstone(row.id) or _NONE
        if row.generation <= mark.cancelled:
            return None
        is_moved = mark.due_at_ms and row.generation <= mark.generation
        due_at_ms = mark.due_at_ms if is_moved else row.due_at_ms
        return _known(self._route.name, row, due_at_ms)


def _reader() -> ColdReader:
    (found,) = entry_points(group="duebridge.cold", name=FORM)
    try:
        reader: ColdReader = found.load()
    except ImportError as error:
        missing = f"expected the Python package {error.name}, which is not installed"
        raise ConfigError(f"cold_tier: {missing}; type: pip install 'duebridge[spark]'") from error
    return reader


def _known(route: str, row: ColdRow, due_at_ms: int) -> Known:
    return Known(
        id=row.id,
        route=route,
        state=COLD,
        due_at_ms=due_at_ms,
        scheduled_at_ms=row.scheduled_at_ms,
        expires_at_ms=row.expires_at_ms,
        attempt=0,
        failures=0,
        expiries=0,
        reason="",
        error_class="",
        error_message="",
        first_failed_at_ms=0,
        last_failed_at_ms=0,
        letter_error="",
    )
