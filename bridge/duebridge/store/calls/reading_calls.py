"""Calls that only read: a page or the parts of a state, and what a shard took in before.

Many processes read the parts of a state at once.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from duebridge.store.calls.shard_calls import ShardCalls
from duebridge.store.wire.packed_page import PackedPage, read_packed_page
from duebridge.store.wire.poll import NONE
from duebridge.store.wire.replies import (
    Count,
    State,
    build_reply_types,
    in_rows,
    read_reply,
    read_state,
    read_text,
)

MAX_BATCH_BYTES = 1024 * 1024  # of records that one call reads: lua/shared/record.lua
RecallAnswer: TypeAlias = Literal["ended", "lives", ""]


class Split(NamedTuple):
    """The number of envelopes of a state, and id and score of the last of each part but the last.

    A part follows the cut before it, in the order of scores and then of the ids' bytes. A cut is a
    cursor of `DelayStore.list`.
    """

    rows: int
    cuts: list[tuple[str, int]]


class _RecallReply(NamedTuple):
    now_ms: int
    answers: list[bytes]


class _SplitReply(NamedTuple):
    now_ms: int
    rows: Count
    ids: list[bytes]
    scores_ms: list[int]


build_reply_types(_RecallReply)
build_reply_types(_SplitReply)


class ReadingCalls(ShardCalls):
    """The calls that look at the indexes of a shard, and at what it remembers."""

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

    def list_packed(
        self,
        state: str,
        *,
        limit: int = 100,
        cursor: tuple[str, int] | None = None,
        due_from_ms: int | None = None,
        due_to_ms: int | None = None,
    ) -> PackedPage:
        """Return what `DelayStore.list` does, by column and without decoding a content."""
        bounds = due_from_ms, due_to_ms
        return read_packed_page(*self._listed(state, limit, cursor, bounds, MAX_BATCH_BYTES))

    def _listed(
        self,
        state: str,
        limit: int,
        cursor: tuple[str, int] | None,
        bounds: tuple[int | None, int | None],
        limit_bytes: int,
    ) -> tuple[State, object]:
        """Return the state of a page's envelopes, and the page as the store has it."""
        lower = "-inf" if bounds[0] is None else bounds[0]
        upper = "+inf" if bounds[1] is None else bounds[1]
        after_id, after_score = cursor or ("", "")
        ended_with = "+inf" if after_score == NONE else after_score
        reply = self._run("list", state, lower, upper, after_id, ended_with, limit, limit_bytes)
        return read_state(b"ready" if state == "suspect" else state.encode()), reply

    def recall(self, contents: Sequence[tuple[str, bytes]]) -> list[RecallAnswer]:
        """Return what the store knows of contents, given as pairs of id and content hash.

        - `ended`: this content ended under the id, and its remember time is not over. Other content
          that has begun or ended under the id since changes nothing about that; the store keeps
          the newest 32 ends beside the last one.
        - `lives`: not so, but the store has something under the id, with this content or other.
        """
        flat = (part for pair in contents for part in pair)
        _, answers = read_reply(self._run("recall", len(contents), *flat), _RecallReply)
        return read_reply([read_text(each) for each in answers], list[RecallAnswer])
