"""Keeps the positions of an intake in logs that keep none themselves, such as streams.

A position may be behind what the shards took in (`store.wire.log_positions`), never ahead of it: it
is written after them.
"""

from typing import Any

from duebridge.config.fields import checked_name
from duebridge.errors import StoreError
from duebridge.store.keys import intake_key
from duebridge.store.server.connection import Connection
from duebridge.store.server.errors import translated_errors
from duebridge.store.server.scripts import script


class StorePositions:
    """The positions of one intake (`ports.source.Positions`); they only go forward."""

    def __init__(
        self, connection: Connection, namespace: str, intake: str, repeat_for_s: float = 0.0
    ) -> None:
        """Keep them in a namespace; `repeat_for_s` is the patience while the store is away."""
        name = checked_name("intake", intake)
        self._key = intake_key(checked_name("namespace", namespace), name)
        self._connection = connection
        self._client: Any = connection.client
        self._repeat_for_s = repeat_for_s

    def read(self, log: str) -> int | None:
        """Return the offset of the last message that was settled, None for a log never noted."""

        def ask() -> Any:
            with translated_errors():
                return self._client.hget(self._key, log)

        reply = self._connection.repeat_while_away(ask, self._repeat_for_s, self._key)
        found: bytes | None = reply.value
        if found is not None and not found.isdigit():
            raise StoreError(f"{self._key}: {log}: expected an offset; got {found[:40]!r}")
        return None if found is None else int(found)

    def write(self, log: str, offset: int) -> None:
        """Note that every message up to an offset is settled; a lower offset changes nothing."""
        given = (log, offset)
        self._connection.run(script("registry/position"), [self._key], given, self._repeat_for_s)
