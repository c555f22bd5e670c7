"""The server's own clock, with no other: nothing is claimable before its due instant."""

import random
import time
from datetime import UTC, datetime, timedelta

from duebridge.envelope import Envelope
from tests.store.conftest import Opened
from tests.support.desk import YEAR_MS, Desk

WITHIN_S = 20.0


def server_us(desk: Desk) -> int:
    found = desk.client.time(target_nodes="random") if is_cluster(desk) else desk.client.time()
    seconds, microseconds = found
    return int(seconds) * 1_000_000 + int(microseconds)


def is_cluster(desk: Desk) -> bool:
    return "Cluster" in type(desk.client).__name__


def real_desk(open_desk: Opened) -> Desk:
    desk = open_desk()
    desk.store, desk.is_whole = desk.again(now_ms=None), False
    return desk


def sub_millisecond_schedules(desk: Desk, count: int) -> dict[str, int]:
    """Delays and instants of any number of microseconds; id → earliest allowed instant, µs."""
    drawn = random.Random(1)
    earliest, batch = {}, []
    accepted_after_us = server_us(desk)
    for n in range(count):
        us = drawn.randrange(1_000_000)
        name = f"{n:04d}"
        if n % 2:
            at_us = accepted_after_us + us
            at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at_us)
            batch.append(Envelope.new(b"", id=name, at=at))
            earliest[name] = at_us
        else:
            batch.append(Envelope.new(b"", id=name, delay=timedelta(microseconds=us)))
            earliest[name] = accepted_after_us + us
    desk.store.schedule(batch, max_delay_ms=YEAR_MS)
    return earliest


def test_claim_by_the_servers_clock_is_never_early(open_desk: Opened) -> None:
    desk = real_desk(open_desk)
    earliest = sub_millisecond_schedules(desk, 1000)
    left, give_up_at = dict(earliest), time.monotonic() + WITHIN_S
    early = []
    while left:
        assert time.monotonic() < give_up_at, f"{len(left)} never became claimable"
        desk.store.promote()
        claim = desk.store.claim(1000, 60_000)
        now_us = server_us(desk)
        claimed = [each.id for each in claim.leased]
        early += [name for name in claimed if now_us < left.pop(name)]
        assert all(each.record.due_at_ms <= claim.poll.now_ms for each in claim.leased)
    assert early == []


def test_due_of_a_delay_is_rounded_up_from_the_servers_microseconds(open_desk: Opened) -> None:
    desk = real_desk(open_desk)
    for n in range(100):
        before_us = server_us(desk)
        (answer,) = desk.store.schedule(
            [Envelope.new(b"", id=str(n), delay="7ms")], max_delay_ms=YEAR_MS
        )
        after_us = server_us(desk)
        assert before_us + 7000 <= answer.due_at_ms * 1000 < after_us + 8000


def test_due_in_whole_seconds_fires_no_part_of_a_second_early(desk: Desk) -> None:
    desk.clock.now_ms = 1_700_000_000_999
    desk.pending(*[Envelope.new(b"", id=str(ms), delay=f"{ms}ms") for ms in (1, 500, 940, 1001)])
    for ms in (1, 500, 940, 1001):
        due = 1_700_000_000_999 + ms
        desk.clock.now_ms = due - 1
        assert desk.claim_all().leased == []
        desk.clock.now_ms = due
        assert [each.id for each in desk.claim_all().leased] == [str(ms)]
