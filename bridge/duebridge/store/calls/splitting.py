"""Divides the envelopes of a state into parts, so that many processes read one shard at once."""

from typing import NamedTuple

from duebridge.store.calls.shard_calls import ShardCalls
from duebridge.store.wire.replies import Count, build_reply_types, in_rows, read_reply, read_text


class Split(NamedTuple):
    """How many envelopes a state has, and id and score of the last of each part but the last.

    A part follows the cut before it, in the order of scores and then of the ids' bytes. A cut is a
    cursor of `DelayStore.list`.
    """

    rows: int
    cuts: list[tuple[str, int]]


class _SplitReply(NamedTuple):
    now_ms: int
    rows: Count
    ids: list[bytes]
    scores_ms: list[int]


build_reply_types(_SplitReply)


class DividedShard(ShardCalls):
    """The calls that look at the indexes of a shard alone."""

    def split(
        self, state: str, most: int, due_from_ms: int | None = None, due_to_ms: int | None = None
    ) -> Split:
        """Divide a state into parts of at most `most` envelopes, of equal size; at most 500 parts.

        The server looks up each cut by its rank: a million envelopes cost it as much as a thousand.
        """
        lower = "-inf" if due_from_ms is None else due_from_ms
        upper = "+inf" if due_to_ms is None else due_to_ms
        reply = self._run("split", state, lower, upper, most)
        _, rows, *columns = read_reply(reply, _SplitReply)
        return Split(rows, [(read_text(name), score) for name, score in in_rows(*columns)])
