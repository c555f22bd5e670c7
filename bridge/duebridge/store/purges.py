"""Reads which routes were purged, when and by whom: the newest 1,000 of a namespace.

The layout is lua/registry/leave.lua's. A purge removes its route's journals, so that it is
journalled beside them.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from duebridge.config.fields import checked_name
from duebridge.errors import RecordDamaged, described
from duebridge.store.keys import purged_key
from duebridge.store.server.connection import Connection
from duebridge.store.server.errors import translated_errors


class Purge(NamedTuple):
    """A route that was removed with so many envelopes, waiting and dead; `actor` gave the word."""

    id: str
    at_ms: int
    route: str
    shards: int
    envelopes: int
    actor: str


class PurgeLog:
    """The purges of a namespace."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self._client: Any = connection.client
        self._key = purged_key(checked_name("namespace", namespace))

    def after(self, id: str = "") -> Iterator[Purge]:  # noqa: A002 - the public name of the field
        """Yield the purges behind the one of this id, or all, oldest first. Raises `StoreError`."""
        with translated_errors():
            found = self._client.xrange(self._key, f"({id}" if id else "-", "+")
        return (_purge(*each) for each in found)


def _purge(stream_id: bytes, fields: dict[bytes, bytes]) -> Purge:
    try:
        return Purge(
            stream_id.decode(),
            int(fields[b"t"]),
            fields[b"r"].decode(errors="backslashreplace"),
            int(fields[b"s"]),
            int(fields[b"n"]),
            fields[b"w"].decode(errors="backslashreplace"),
        )
    except (KeyError, ValueError) as error:
        raise RecordDamaged(f"purge {stream_id!r}: {described(error)}") from error
