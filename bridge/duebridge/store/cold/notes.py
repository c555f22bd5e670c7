"""The notes of a shard about its route's cold tier: marks on cold rows, and hydrate's progress.

A mark is a tombstone of an id, or says that a batch's copy of it is void (lua/README.md). Scripts
write and obey marks; a job reads all of them at once.
"""

from typing import Any, NamedTuple

from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.server.connection import REPEAT_FOR_S, Connection
from duebridge.store.server.errors import SlotMigrating, translated_errors

SCAN_COUNT = 1000


class Mark(NamedTuple):
    """A tombstone, or a void copy of `batch`; `due_at_ms` is 0 for an unchanged due instant.

    `cancelled` and `ended` are the generations up to which rows of the id were cancelled, and ended
    because the id began anew in the store.
    """

    name: str
    id: str
    batch: str
    generation: int
    due_at_ms: int
    cancelled: int
    ended: int = 0


class ColdFilter(NamedTuple):
    """A shard's filter of cold ids; it has no `words` where none is in use.

    `kept` is how many marks the last rebuild found to be needed.
    """

    words: int
    marked: int
    kept: int


class ColdNotes:
    """The notes of one shard. All methods raise `StoreError`."""

    def __init__(self, connection: Connection, shard: Shard) -> None:
        self._connection = connection
        self._client: Any = connection.client
        self.store = DelayStore(connection, shard)
        self._memory, self._meta = shard.key("memory"), shard.key("meta")

    def new_generation(self) -> int:
        """Return a new generation, less than any that is given out later."""
        return self.store.new_generation()

    def marks(self) -> list[Mark]:
        """Return all tombstones and void copies there at the start; some may have expired.

        The cursor of a scan means nothing to another server: if one takes over meanwhile, the scan
        begins again.
        """
        found: list[Mark] = self._connection.repeat_while_away(
            self._marks_of_one_server, REPEAT_FOR_S, self._memory
        ).value
        return found

    def _marks_of_one_server(self) -> list[Mark]:
        """Raise `SlotMigrating` if the shard is, or was meanwhile, on its way to another server."""
        try:
            with translated_errors():
                server = self._connection.server_of(self._memory)
                run = server.info("server")["run_id"]
                found = [
                    _mark(name.decode(), value)
                    for name, value in server.hscan_iter(self._memory, "[tx]*", SCAN_COUNT)
                ]
                after = self._connection.server_of(self._memory)
                if after.info("server")["run_id"] == run:
                    return found
        except SlotMigrating:
            self._connection.renew_map()
            raise
        raise SlotMigrating("another server took the shard over while its marks were read")

    def tombstone(self, id: str) -> Mark | None:  # noqa: A002 - the public name of the field
        """Return the tombstone of an id; None for none."""
        name = f"t{id}"
        with translated_errors():
            value = self._client.hget(self._memory, name)
        return None if value is None else _mark(name, value)

    def is_void(self, batch: str, id: str) -> bool:  # noqa: A002 - the public name of the field
        """Return whether a batch's copy of an id is void."""
        with translated_errors():
            return bool(self._client.hexists(self._memory, f"x{batch}/{id}"))

    def has_progress(self, batch: str) -> bool:
        """Return whether the store knows how far a batch is demoted."""
        with translated_errors():
            return bool(self._client.hexists(self._memory, f"d{batch}"))

    def progress(self, batch: str) -> int:
        """Return how many rows of a batch have left the store, or are void."""
        with translated_errors():
            value = self._client.hget(self._memory, f"d{batch}")
        return int.from_bytes((value or b"")[6:12])

    def note_hydrating(self, until_ms: int, lease: str = "") -> None:
        """Note that a hydrate begins: from now on no envelope due before an instant goes cold."""
        self.store.note("hydrating_until", until_ms, lease=lease)

    def note_hydrated(self, until_ms: int, lease: str = "") -> None:
        """Note that every envelope due before an instant is in the store; each poll reports it."""
        self.store.note("hydrated_until", until_ms, lease=lease)

    def note_first(self, until_ms: int) -> None:
        """Note it before the first row goes cold; later calls change nothing."""
        self.store.note("hydrated_until", until_ms, "first")

    def kept_until(self) -> int:
        """Return the instant before which no envelope goes cold."""
        with translated_errors():
            found = self._client.hmget(self._meta, ("hydrated_until", "hydrating_until"))
        return max(int(value or 0) for value in found)

    def note_kept(self, marks: int) -> None:
        """Note how many marks a rebuild of the filter kept."""
        self.store.note("cold_kept", marks)

    def filter(self) -> ColdFilter:
        """Return the shard's filter of cold ids."""
        names = ("cold_words", "cold_marked", "cold_kept")
        with translated_errors():
            found = self._client.hmget(self._meta, names)
        return ColdFilter(*(int(value or 0) for value in found))


def _mark(name: str, value: bytes) -> Mark:
    if name.startswith("x"):
        batch, _, envelope_id = name[1:].partition("/")
        return Mark(name, envelope_id, batch, 0, 0, 0)
    generation, due, cancelled, ended = (int.from_bytes(value[n : n + 6]) for n in (6, 12, 18, 24))
    return Mark(name, name[1:], "", generation, due, cancelled, ended)
