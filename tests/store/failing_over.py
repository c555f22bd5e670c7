"""A shard that is on another server than it was renewed on, and its counters."""

import secrets

from tests.support.desk import Desk

Counters = tuple[int, int]


def fail_over(desk: Desk) -> None:
    """Let the shard be on another server than it was renewed on."""
    desk.client.hset(desk.key("meta"), "master", secrets.token_hex(20))


def counters(desk: Desk) -> Counters:
    """The last generation and journal number."""
    found = desk.client.hmget(desk.key("meta"), "generation", "journal_sequence")
    return int(found[0] or 0), int(found[1] or 0)
