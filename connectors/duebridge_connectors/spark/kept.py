"""Tells the store how far a table has the journal, so that its lag is a metric of the workers."""

from contextlib import suppress

from duebridge.errors import StoreError
from duebridge.store.journal import Journal
from duebridge.store.keys import Shard
from duebridge_connectors.spark.journal_table import JournalTable
from duebridge_connectors.spark.place import Place


def tell_kept(store: Place, table: JournalTable, batch: int) -> None:
    """Note in the store what a batch of the table's query reaches; where it is away, the next does.

    It tells people only: what the table has is in its manifests and its checkpoint.
    """
    with suppress(StoreError), store.opened() as connection:
        for name, until in table.reached(batch).items():
            route, _, number = name.rpartition("/")
            Journal(connection, Shard(store.namespace, route, int(number))).note_kept(until)
