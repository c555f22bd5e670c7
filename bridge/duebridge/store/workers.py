"""Keeps the workers' records: their lanes, and the targets that they hold.

A worker repeats its record every few seconds; the store forgets it after `KEPT_MS`. A worker whose
store user may not write it delivers all the same.
"""

from typing import Any, Literal

import msgspec

from duebridge.config.fields import checked_name
from duebridge.errors import StoreError, StoreUnavailable
from duebridge.store.keys import worker_key, workers_key
from duebridge.store.server.connection import Connection
from duebridge.store.server.errors import translated_errors
from duebridge.store.server.scripts import script

KEPT_MS = 15_000
MOST_ERROR = 500  # characters of an error in a record


class LaneRecord(msgspec.Struct, frozen=True):
    """A worker's path to a broker; `window` and `outstanding` count envelopes."""

    broker: str
    is_open: bool
    error: str = ""
    window: int = 0
    outstanding: int = 0


class HeldTarget(msgspec.Struct, frozen=True):
    """A target that a worker holds since its failure at `since_ms`; `error` is its latest.

    `is_at_fault`: it is missing or forbids, so that the clock of `hold` runs. `routes` deliver to
    it, `letters_of` send their dead letters there; of `target_of` it is the configured target, and
    not one of an envelope's own. `tag` marks in the store what is set aside for it.
    """

    broker: str
    target: str
    error: str
    since_ms: int
    is_at_fault: bool = False
    outstanding: int = 0
    routes: tuple[str, ...] = ()
    letters_of: tuple[str, ...] = ()
    target_of: tuple[str, ...] = ()
    tag: str = ""

    @property
    def role(self) -> Literal["route", "own", "dead_letter"]:
        """`route`: a route's target; `own`: of envelopes alone; `dead_letter`: of letters alone."""
        if self.target_of:
            return "route"
        return "own" if self.routes or not self.letters_of else "dead_letter"


class IntakeRecord(msgspec.Struct, frozen=True):
    """An intake that a process runs; `lag` is its share of what waits at the broker, if known.

    `is_up`: it reads its source; else `error` says why not. `waiting_ms`: how long the batch in
    hand has waited for the store or for the dead-letter target; `error` then says for what.
    """

    name: str
    is_up: bool
    error: str = ""
    lag: int | None = None
    waiting_ms: int = 0


class WorkerRecord(msgspec.Struct, frozen=True):
    """One worker process, at the store's time `at_ms`; `routes` are those that it serves."""

    id: str
    host: str
    pid: int
    version: str
    started_at_ms: int
    at_ms: int
    lanes: tuple[LaneRecord, ...] = ()
    held: tuple[HeldTarget, ...] = ()
    routes: tuple[str, ...] = ()
    intakes: tuple[IntakeRecord, ...] = ()  # of what a newer version adds, an older reads nothing


class Workers:
    """The records of a namespace's workers. All methods raise `StoreError`."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self._connection = connection
        self._client: Any = connection.client
        self._namespace = checked_name("namespace", namespace)
        self._index = workers_key(namespace)

    def now_ms(self) -> int:
        """Return the store's clock, for a process that polls no shard."""
        with translated_errors():
            seconds, micros = self._client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def write(self, record: WorkerRecord) -> None:
        """Replace a worker's record, and forget the workers that said nothing for `KEPT_MS`."""
        keys = [self._index, worker_key(self._namespace, record.id)]
        given = (record.id, msgspec.json.encode(record), record.at_ms, KEPT_MS)
        self._connection.run(script("registry/report"), keys, given)

    def remove(self, worker_id: str) -> None:
        """Remove a worker's record, by expiry: its user needs no right to delete."""
        with translated_errors():
            self._client.zrem(self._index, worker_id)
            self._client.set(worker_key(self._namespace, worker_id), b"", px=1)

    def read(self) -> list[WorkerRecord]:
        """Return the records of the workers that are up, by id; damaged ones are left out.

        Where there are none it asks too: a user without the right to read may have none to write.
        """
        with translated_errors():
            ids = sorted(self._client.zrange(self._index, 0, -1)) or [b""]
            keys = [worker_key(self._namespace, each.decode(errors="replace")) for each in ids]
            found = self._client.mget(keys)
        return [record for packed in found if packed and (record := _decoded(packed))]

    def read_if_allowed(self) -> list[WorkerRecord] | None:
        """Return the records; None if the store's user has no right to read them."""
        try:
            return self.read()
        except StoreUnavailable:
            raise
        except StoreError:
            return None


def _decoded(packed: bytes) -> WorkerRecord | None:
    try:
        return msgspec.json.decode(packed, type=WorkerRecord)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
