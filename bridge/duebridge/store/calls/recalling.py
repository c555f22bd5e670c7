"""Asks a shard what it took in before."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from duebridge.store.calls.shard_calls import ShardCalls
from duebridge.store.wire.replies import build_reply_types, read_reply, read_text

RecallAnswer: TypeAlias = Literal["ended", "lives", ""]


class _RecallReply(NamedTuple):
    now_ms: int
    answers: list[bytes]


build_reply_types(_RecallReply)


class RecallingShard(ShardCalls):
    """The call that looks at what a shard remembers; `DelayStore` has the others."""

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
