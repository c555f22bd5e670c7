"""Offsets of the journal's stream, and the entries between two of them.

    {"reminders/0": [first, until, found, next, ..., epoch], ...}

first: the oldest entry of the shard at planning; until: the last of the batch; found and next, of
each jump up to it: the last number that a renewal found, and the number of its own entry
(`duebridge.store.numbering`); epoch: which life of the route has these numbers. Offsets of versions
up to 0.2 have no epoch.

Entry numbers have no other holes. Entries that the cap removed before planning are therefore known,
and become a row of kind `gap`, as those do that were read and that the store lost in a failover.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from duebridge.errors import StoreError
from duebridge.store.journal import Journal
from duebridge.store.keys import Shard
from duebridge.store.numbering import Jump, Numbering

START_AGAIN = "Start again with another checkpoint, and the job journal with another table"
TASK_ENTRIES = 256  # of up to 1,000 rows each

Offset: TypeAlias = dict[str, list[int | str]]
Ends: TypeAlias = "Mapping[Shard, JournalEnds]"


@dataclass(frozen=True)
class JournalRange(InputPartition):
    """Entries `after` + 1 to `until` of one life of a route, or a gap of `lost` entries there."""

    shard: Shard
    after: int
    until: int
    lost: int
    epoch: str = ""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "JournalRange":
        """Return the range that a row of `RANGES` has."""
        shard = Shard(row["namespace"], row["route"], row["shard"])
        return cls(shard, row["after"], row["until"], row["lost_entries"], row["epoch"])

    def row(self) -> tuple[Any, ...]:
        """Return it as a row of `RANGES`."""
        return (*self.shard, self.after, self.until, self.lost, self.epoch)


class ShardOffset(NamedTuple):
    """How far a shard is read; without an epoch nothing is, or an older version read it."""

    first: int = 1
    until: int = 0
    numbering: Numbering = Numbering()
    epoch: str = ""

    @classmethod
    def of(cls, offset: Offset, shard: Shard) -> "ShardOffset":
        """Return the offset of a shard; that of a new one is before its first entry."""
        values = offset.get(shard_name(shard))
        return cls() if values is None else cls.read(values)

    @classmethod
    def read(cls, values: Sequence[int | str]) -> "ShardOffset":
        """Return what a checkpoint has of a shard."""
        first, until, *flat = (value for value in values if isinstance(value, int))
        epoch = next((value for value in values if isinstance(value, str)), "")
        return cls(first, until, Numbering(map(Jump, flat[::2], flat[1::2])), epoch)

    def values(self) -> list[int | str]:
        """Return it as the checkpoint has it."""
        jumps = chain.from_iterable(self.numbering.up_to(self.until).jumps)
        return [
            self.first,
            self.until,
            *jumps,
            *([self.epoch] if self.until and self.epoch else []),
        ]


class JournalEnds(NamedTuple):
    """The numbers of the oldest entry present, and of the newest to read."""

    first: int
    last: int
    numbering: Numbering
    epoch: str

    @classmethod
    def of(cls, journal: Journal, start: ShardOffset) -> "JournalEnds":
        """Return the ends of a journal; raises `StoreError` where it does not go on from `start`.

        After a failover that lost what was read, wait for the renewal, which goes on beyond it.
        """
        end, waits = journal.end(), False
        if end.last < start.until:
            waits = journal.awaits_renewal()
            end = journal.end()  # another client may have renewed it before that question
        is_other_life = start.epoch and end.epoch not in ("", start.epoch)
        if is_other_life or (end.last < start.until and not waits):
            raise StoreError(
                f"journal {shard_name(journal.shard)}: expected entry {start.until}, the last read,"
                f" or newer ones of the same life of the route; got entry {end.last} of"
                f" {'another' if is_other_life else 'that'} life: the route was purged, the store"
                f" was emptied, or an older duebridge went on after a failover. {START_AGAIN}"
            )
        return cls(min(journal.first(), end.last + 1), *end)

    def up_to(self, target: int) -> "JournalEnds":
        """Return the ends without what comes after an entry that was the newest once."""
        return self._replace(last=min(self.last, self.numbering.kept(target)))

    def offset(self, until: int) -> list[int | str]:
        """Return the offset of a shard that is read up to a number."""
        return ShardOffset(self.first, until, self.numbering, self.epoch).values()


def planned(start: Offset, found: Ends, limit: ReadLimit) -> Offset:
    """Return the end of a batch: all new entries, or shares of the limit for each shard."""
    read = {shard: ShardOffset.of(start, shard).until for shard in found}
    begins = {
        shard: max(read[shard], min(ends.first - 1, ends.last)) for shard, ends in found.items()
    }
    waiting = {
        shard: ends.numbering.count(begins[shard], ends.last) for shard, ends in found.items()
    }
    most = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(waiting.values())
    shares = _shares(waiting, most, sum(read.values()))
    offset = dict(start)
    for shard, ends in found.items():
        until = ends.numbering.advanced(begins[shard], ends.last, shares[shard])
        if until > read[shard]:
            offset[shard_name(shard)] = ends.offset(until)
    return offset


def ranges_between(shards: Sequence[Shard], start: Offset, end: Offset) -> list[JournalRange]:
    """Return the ranges of a batch, with its gaps; equal offsets give equal ranges."""
    return [
        found
        for shard in shards
        for found in _ranges(shard, ShardOffset.of(start, shard).until, ShardOffset.of(end, shard))
    ]


def shard_name(shard: Shard) -> str:
    """Return the name of a shard in an offset."""
    return f"{shard.route}/{shard.number}"


def named_shard(namespace: str, name: str) -> Shard:
    """Return the shard that an offset names."""
    route, _, number = name.rpartition("/")
    return Shard(namespace, route, int(number))


def _shares(waiting: Mapping[Shard, int], most: int, turn: int) -> dict[Shard, int]:
    """Divide a limit equally among shards; the unused part of a share goes to the others.

    A limit below the number of shards that wait goes to those whose turn it is, one entry each.
    """
    busy = [shard for shard, count in waiting.items() if count]
    if most < len(busy):
        chosen = {busy[(turn + place) % len(busy)] for place in range(most)}
        return {shard: int(shard in chosen) for shard in waiting}
    shares: dict[Shard, int] = {}
    left = most
    for rank, (shard, count) in enumerate(sorted(waiting.items(), key=itemgetter(1))):
        shares[shard] = min(count, left // (len(waiting) - rank))
        left -= shares[shard]
    return shares


def _ranges(shard: Shard, after: int, end: ShardOffset) -> Iterator[JournalRange]:
    begin = max(after, min(end.first - 1, end.until))
    if lost := end.numbering.count(after, begin) + end.numbering.lost(after, end.until):
        yield JournalRange(shard, after, begin, lost)
    for span in end.numbering.spans(begin, end.until):
        for at in range(span.after, span.until, TASK_ENTRIES):
            yield JournalRange(shard, at, min(span.until, at + TASK_ENTRIES), 0, end.epoch)
