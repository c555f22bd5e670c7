"""The scripts of a shard's cold tier: what leaves for files, and what may come back.

A row counts in the files once a commit names it; the store knows the ids of all such rows by a
filter, and what became of them since by tombstones (lua/README.md).
"""

from collections.abc import Sequence

from duebridge.store.calls.shard_calls import ShardCalls
from duebridge.store.wire.replies import (
    DemoteReply,
    DoneReply,
    GenerationReply,
    LiftReply,
    MarkReply,
    OccupyReply,
    SiftReply,
    read_reply,
    read_text,
)


class ColdCalls(ShardCalls):
    """Methods of the cold tier; `DelayStore` has the others."""

    def demote(self, batch: str, first: int, rows: Sequence[tuple[str, int]]) -> DemoteReply:
        """Remove rows, pairs of id and generation, that a batch of the cold tier has copied.

        `first` is the index in the batch of the first row; rows come in the batch's order, and none
        is done twice. The copy of an envelope that changed since, or that is due before a hydrate's
        end, is void from this moment on.
        """
        flat = (part for row in rows for part in row)
        arguments = (batch, first, self._cold_tier_ms, len(rows), *flat)
        reply = self._run("demote", *arguments, ids=[each for each, _ in rows])
        return read_reply(reply, DemoteReply)

    def lift(self, generation: int, names: Sequence[str], lease: str = "") -> int:
        """Drop tombstones and void copies, by their `Mark.name`; return how many.

        A tombstone of `generation` or later stays. Refused without the caller's `lease`.
        """
        reply = self._run("lift", generation, len(names), *names, lease)
        return read_reply(reply, LiftReply).dropped

    def new_generation(self) -> int:
        """Return a new generation, less than any that is given out later."""
        return read_reply(self._run("generation"), GenerationReply).generation

    def occupy(self, token: str, lease_ms: int, who: str, held: str = "") -> OccupyReply:
        """Take the lease of the cold tier, or renew the one of the token `held`.

        `token` is the caller's from now on; what has an earlier one is refused. A lost lease is
        never renewed.
        """
        return read_reply(self._run("occupy", held, token, lease_ms, who), OccupyReply)

    def vacate(self, token: str) -> bool:
        """Give the lease of the cold tier back; return whether the caller had it."""
        return bool(read_reply(self._run("vacate", token), DoneReply).did)

    def mark(self, ids: Sequence[str], lowest: int | None, lease: str) -> list[str]:
        """Mark ids whose rows are about to be cold, with their lowest generation.

        Return those that live here, have just ended or are remembered: their rows are void, and the
        store is to judge them. Without a generation only the filter that is being rebuilt gets the
        ids.
        """
        floor = "" if lowest is None else lowest
        reply = self._run("mark", floor, lease, len(ids), *ids, ids=ids)
        return [read_text(each) for each in read_reply(reply, MarkReply).void]

    def begin_sift(self, words: int, generation: int, lease: str) -> None:
        """Begin a filter of so many words of 32 bits; it gets all that is marked from now on."""
        read_reply(self._run("sift", lease, words, generation), SiftReply)

    def end_sift(self, floor: int, lease: str) -> int:
        """Use the new filter, and refuse rows of a generation below `floor`; return its ids."""
        return read_reply(self._run("sift", lease, "", floor), SiftReply).marked
