"""Nothing is claimable before its due instant, by the server's own clock and in any locale.

Lua compares texts by the server's locale, and so must compare numbers: under `en_US.UTF-8`, which
many systems give to all they start, `a` comes before `B`.
"""

import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from duebridge.envelope import Envelope
from duebridge.store.server.connection import open_connection
from tests.store.conftest import Opened
from tests.support.desk import LEASE_MS, NOW_MS, YEAR_MS, Desk, envelope
from tests.support.servers import redis_server

WITHIN_S = 20.0
MOST_US = 300_000  # of a delay: the test asks all the while
LOCALE = "en_US.ISO-8859-1"  # sorts as en_US.UTF-8, and is compiled in a third of its time


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
        us = drawn.randrange(MOST_US)
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


SMALL_A = NOW_MS - NOW_MS % 256 + ord("a")
LARGE_B = NOW_MS - NOW_MS % 256 + ord("B")
assert LARGE_B < SMALL_A


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    home = tmp_path_factory.mktemp("locale")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCPATH", str(make_locale(home)))
        patch.setenv("LC_ALL", LOCALE)
        with redis_server(home) as port:
            yield port


def make_locale(home: Path) -> Path:
    if not Path("/usr/share/i18n/locales/en_US").exists() or not shutil.which("localedef"):
        pytest.skip("no source of a locale here: install the package `locales`")
    name, _, charset = LOCALE.partition(".")
    subprocess.run(["localedef", "-i", name, "-f", charset, str(home / LOCALE)], check=True)
    return home


@pytest.fixture
def local_desk(port: int) -> Iterator[Desk]:
    opened = open_connection(f"redis://127.0.0.1:{port}")
    assert opened.client.eval("return 'a' < 'B' and 1 or 0", 0) == 1, "the locale took no effect"
    yield Desk(opened, "locale")
    opened.client.flushdb()
    opened.close()


def test_claim_in_any_locale_expires_what_is_over_and_nothing_else(local_desk: Desk) -> None:
    local_desk.clock.now_ms = LARGE_B - 1
    local_desk.schedule(
        envelope("later", at=0, expires=SMALL_A), envelope("now", at=0, expires=LARGE_B)
    )
    local_desk.clock.now_ms = LARGE_B
    assert [each.id for each in local_desk.claim_all().leased] == ["later"]
    assert local_desk.state_of("now") == "dead"
    local_desk.clock.now_ms = LARGE_B - 1
    local_desk.schedule(envelope("over", at=0, expires=LARGE_B))
    local_desk.clock.now_ms = SMALL_A
    assert local_desk.claim_all().leased == []
    assert local_desk.state_of("over") == "dead"


def test_reschedule_in_any_locale_knows_what_is_before_an_expiry(local_desk: Desk) -> None:
    local_desk.clock.now_ms = LARGE_B - 1
    local_desk.schedule(envelope("a", at=0, expires=SMALL_A), envelope("b", at=0, expires=LARGE_B))
    assert local_desk.store.reschedule("a", str(LARGE_B), YEAR_MS)[0] == "rescheduled"
    assert local_desk.store.reschedule("b", str(SMALL_A), YEAR_MS)[0] == "expires_before_due"


def test_replay_in_any_locale_keeps_an_expiry_to_come(local_desk: Desk) -> None:
    local_desk.clock.now_ms = LARGE_B - 2000
    local_desk.dead(envelope("a", expires=SMALL_A))
    local_desk.clock.now_ms = LARGE_B
    assert local_desk.store.replay(["a"], [0]) == ["replayed"]
    assert local_desk.record_of("a").expires_at_ms == SMALL_A


def test_claim_in_any_locale_knows_a_newer_layout(local_desk: Desk) -> None:
    local_desk.suspect("a")
    local_desk.make_newer("a")
    local_desk.store.claim(1, LEASE_MS, alone=True)
    local_desk.run_out(poison=1)
    assert local_desk.state_of("a") == "suspect"
