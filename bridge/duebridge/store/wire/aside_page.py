"""The answer of `count_aside`: what is set aside by target, a page of retries at a time."""

from collections.abc import Mapping
from typing import NamedTuple

from duebridge.store.wire.replies import (
    Count,
    build_reply_types,
    in_rows,
    read_cursor,
    read_reply,
    read_text,
)


class AsidePage(NamedTuple):
    """How many are set aside by tag of their target, and the next cursor, None at the end."""

    counts: Mapping[str, int]
    cursor: tuple[str, str] | None


class _AsideReply(NamedTuple):
    now_ms: int
    tags: list[bytes]
    counts: list[Count]
    cursor_id: bytes
    cursor_score: bytes


build_reply_types(_AsideReply)


def read_aside(reply: object) -> AsidePage:
    """Return the counts of a page, and where the next one begins."""
    found = read_reply(reply, _AsideReply)
    counts = {read_text(tag): count for tag, count in in_rows(found.tags, found.counts)}
    return AsidePage(counts, read_cursor(found.cursor_id, found.cursor_score))
