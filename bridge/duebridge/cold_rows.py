"""Reads the cold envelopes of a route: rows of its files, corrected by the store's notes.

The core does not read the files itself: the entry point `duebridge.cold` names a reader per format.
"""

from collections.abc import Iterator
from functools import cached_property
from heapq import merge
from importlib.metadata import entry_points
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from duebridge.config.models import ColdTier, Config, Route
from duebridge.errors import ConfigError
from duebridge.receipt import Known
from duebridge.store.cold.notes import ColdNotes, Mark
from duebridge.store.delay_store import DelayStore
from duebridge.store.due_window import ANY_TIME, DueWindow
from duebridge.store.registry import Registry
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import Connection

COLD: Final = "cold"
FORM = "parquet"
LOOKED_UP = 250  # rescheduled ids at a time: each time, files are read
_NONE = Mark("", "", "", 0, 0, 0)


class ColdRow(NamedTuple):
    """A row of a batch; instants in epoch ms, 0 if there is none.

    `place` is how many rows of its shard leave the store before it; -1 once all of the batch have.
    """

    id: str
    batch: str
    generation: int
    due_at_ms: int
    scheduled_at_ms: int
    expires_at_ms: int
    place: int = -1


class ColdReader(Protocol):
    """The function that the entry point names."""

    def __call__(
        self,
        tier: ColdTier,
        route: str,
        ids: tuple[str, ...],
        window: DueWindow,
        leaving: int | None = None,
    ) -> Iterator[ColdRow]:
        """Yield the current rows of some ids, or of all (none given), due within `window`.

        The earliest comes first. `leaving` is a shard's number: rows of the batches that still
        leave it are also read, with their `place`.

        Raises `ConfigError` if the files cannot be read.
        """
        ...


class ColdRows:
    """The cold envelopes of a route. Methods raise `ConfigError` and `StoreError`."""

    def __init__(self, config: Config, connection: Connection, route: Route) -> None:
        self._route = route
        self._namespace = config.store.namespace
        self._connection = connection

    @cached_property
    def _store(self) -> RouteStore:
        """The route's shards, which are looked up once there is a cold tier to read."""
        name = self._route.name
        known = Registry(self._connection, self._namespace).routes().get(name)
        shards = self._route.shards if known is None else known.shards
        return RouteStore(self._connection, self._namespace, name, shards)

    def get(self, id: str) -> Known | None:  # noqa: A002 - the public name of the field
        """Return the envelope of an id that the store did not have, None if it is not cold either.

        The store is asked again if the files have it no more: it may have come back meanwhile.
        """
        if self._route.cold_tier is None:
            return None
        store = self._store.of(id)
        for row in self._rows(ids=(id,), leaving=store.shard.number):
            if (moved_to := self._moved_to(row)) is not None:
                return _known(self._route.name, row, moved_to or row.due_at_ms)
        entry = store.get(id)
        return None if entry is None else Known.of(self._route.name, entry)

    def walk(self, window: DueWindow = ANY_TIME) -> Iterator[Known]:
        """Yield the cold envelopes due within a window, in the order of their due instants.

        One that is rescheduled meanwhile may come twice or not at all. The ids of those that were
        rescheduled into the window are in memory; their rows are looked up when their turn comes.
        """
        if self._route.cold_tier is None:
            return
        in_files = ((row.due_at_ms, 0, row) for row in self._rows(window))
        for due_at_ms, moved_to, row in merge(in_files, self._moved(window), key=itemgetter(0)):
            if row is not None and self._moved_to(row) == moved_to:
                yield _known(self._route.name, row, due_at_ms)

    def _rows(
        self,
        window: DueWindow = ANY_TIME,
        ids: tuple[str, ...] = (),
        leaving: int | None = None,
    ) -> Iterator[ColdRow]:
        if self._route.cold_tier is not None:
            yield from _reader()(self._route.cold_tier, self._route.name, ids, window, leaving)

    def _moved(self, window: DueWindow) -> Iterator[tuple[int, int, ColdRow | None]]:
        """Yield the rows that were rescheduled into a window, by their new due instants.

        None comes before those that are looked up together, so that this waits for their turn.
        """
        moved = self._moved_into(window)
        for begin in range(0, len(moved), LOOKED_UP):
            due = {id_: due_at_ms for due_at_ms, id_ in moved[begin : begin + LOOKED_UP]}
            yield moved[begin][0], 0, None
            rows = self._rows(ids=(*due,))
            for row in sorted(rows, key=lambda row: due[row.id]):
                yield due[row.id], due[row.id], row

    def _moved_into(self, window: DueWindow) -> list[tuple[int, str]]:
        """Return the new due instants that tombstones have within a window, with their ids."""
        marks = chain.from_iterable(self._notes(each).marks() for each in self._store.shards)
        moved = (mark for mark in marks if mark.due_at_ms and window.covers(mark.due_at_ms))
        return sorted({(mark.due_at_ms, mark.id) for mark in moved})

    def _moved_to(self, row: ColdRow) -> int | None:
        """Return the due instant that a row has by a tombstone, 0 for its own.

        None if hydrate will not restore the row, or if its envelope has not left the store for it.
        """
        notes = self._notes(self._store.of(row.id))
        if row.place >= 0 and notes.progress(row.batch) <= row.place:
            return None
        if notes.is_void(row.batch, row.id):
            return None
        mark = notes.tombstone(row.id) or _NONE
        if row.generation <= mark.cancelled:
            return None
        return mark.due_at_ms if row.generation <= mark.generation else 0

    def _notes(self, store: DelayStore) -> ColdNotes:
        return ColdNotes(self._connection, store.shard)


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
