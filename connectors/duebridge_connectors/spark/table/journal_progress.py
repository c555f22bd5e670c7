"""A table's progress in the journal: for the store, whose workers show it, and verdicts."""

from contextlib import suppress

from duebridge.errors import StoreError
from duebridge.store.journal import Journal
from duebridge.store.keys import Shard
from duebridge.store.server.connection import Connection
from duebridge.store.wire.journal_entry import read_head
from duebridge_connectors.spark.source.journal.offset import shard_name
from duebridge_connectors.spark.source.planning import StoreAddress, shards_to_read
from duebridge_connectors.spark.table.journal_table import JournalTable


class JournalProgress:
    """Compares what the query has read with what the store has."""

    def __init__(self, address: StoreAddress, routes: tuple[str, ...], table: JournalTable) -> None:
        """Take the routes that the query reads; none means all."""
        self._address = address
        self._routes = routes
        self._table = table

    def complete_until_ms(self, batch: int) -> int:
        """Return the instant before which a batch leaves nothing out; 0 if the store cannot say.

        That is when the oldest entry was journalled that no batch has yet, or now if all are read:
        of every shard that the query has ever read, for the table keeps those too, and of those to
        read that it has not begun with.
        """
        reached = {name: each.until for name, each in self._table.offset(batch).items()}
        with suppress(StoreError):
            now_ms = self._address.now_ms()  # first: what comes later is later
            wanted = [shard_name(shard) for shard in shards_to_read(self._address, self._routes)]
            with self._address.connect() as connection:
                until_ms = (
                    _read_until_ms(self._journal(connection, name), reached.get(name, 0), now_ms)
                    for name in {*reached, *wanted}
                )
                return min(until_ms, default=0)
        return 0

    def note(self, batch: int) -> None:
        """Write to the store which entries the table has.

        Informative only, and skipped while the store is unreachable: the next batch repeats it.
        """
        with suppress(StoreError), self._address.connect() as connection:
            for name, reached in self._table.offset(batch).items():
                self._journal(connection, name).note_kept(reached.until)

    def _journal(self, connection: Connection, name: str) -> Journal:
        route, _, number = name.rpartition("/")
        return Journal(connection, Shard(self._address.namespace, route, int(number)))


def _read_until_ms(journal: Journal, read: int, now_ms: int) -> int:
    """Return the time of the entry after `read`, now if there is none, 0 if it is gone."""
    after = next(journal.stored(read, read + 1), None)
    if after is not None:
        return read_head(*after).at_ms
    return now_ms if journal.last() <= read else 0
