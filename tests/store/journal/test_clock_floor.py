"""Counters begin beyond every number of an earlier life or server, for a century from 2025 on."""

from datetime import UTC, datetime

import pytest

from duebridge.store.server.scripts import script
from tests.support.desk import YEAR_MS, Desk, envelope

STEP = 2**20
MOST = 3 * 2**46
SINCE_MS = 1_735_689_600_000
SLOWER_MS = SINCE_MS + 2**45 // 262  # the last ms with a floor that rises by 262
OLD_END_MS = SINCE_MS + 2**46 // 262
LAST_MS = SINCE_MS + 2**45 // 262 + (MOST - 2**45) * 5 // 262
LEAST_A_MS = 50  # of what a shard takes in, over its life

INSTANTS = pytest.mark.parametrize(
    "at_ms",
    [SINCE_MS, SLOWER_MS, OLD_END_MS, int(datetime(2126, 12, 31, tzinfo=UTC).timestamp() * 1000)],
    ids=["first", "slower from here", "2^46 at 262 a ms", "a century"],
)


def generation_of_a_life_begun(desk: Desk, at_ms: int) -> int:
    """Begin a life at an instant; return the generation that it begins with."""
    desk.client.delete(desk.key("meta"))
    desk.connection.run(script("open"), desk.shard.keys(), (at_ms, "1", "e:1", ""))
    return desk.generation()


@INSTANTS
def test_open_begins_beyond_what_an_earlier_life_can_have_given(desk: Desk, at_ms: int) -> None:
    instants = [at_ms + after_ms for after_ms in (-3000, -2, -1, 0, 1, 2, 3000, 86_400_000)]
    begun = [generation_of_a_life_begun(desk, max(each, SINCE_MS)) for each in instants]
    for n in range(1, len(begun)):
        passed_ms = max(instants[n], SINCE_MS) - max(instants[n - 1], SINCE_MS)
        assert begun[n] - begun[n - 1] >= LEAST_A_MS * passed_ms
    assert begun[-1] < MOST
    desk.is_whole = False


@INSTANTS
def test_renew_of_servers_that_lost_the_same_writes_gives_different_numbers(
    desk: Desk, at_ms: int
) -> None:
    found = []
    for after_ms in (0, 1, 1000):
        desk.clock.now_ms = at_ms + after_ms
        desk.client.hset(desk.key("meta"), mapping={"generation": 7, "journal_sequence": 7})
        desk.fail_over()
        assert desk.store.renew()
        found.append(desk.counters())
    assert found == sorted(set(found))
    assert all(STEP < number < MOST for pair in found for number in pair)
    desk.is_whole = False


@pytest.mark.parametrize("at_ms", [LAST_MS + 1, 10**14], ids=["after the last", "year 5138"])
def test_shard_counts_on_where_the_floor_has_ended(desk: Desk, at_ms: int) -> None:
    assert generation_of_a_life_begun(desk, at_ms) == MOST
    desk.client.hset(desk.key("meta"), "journal_sequence", MOST)
    desk.open()
    desk.clock.now_ms = at_ms
    desk.fail_over()
    answers = desk.schedule(envelope("a"), envelope("b"), max_delay_ms=YEAR_MS)
    assert [each.status for each in answers] == ["accepted", "accepted"]
    generations = [desk.record_of(name).generation for name in ("a", "b")]
    assert generations == [MOST + STEP + 1, MOST + STEP + 2]
    assert generations[-1] < 2**48
    assert [entry.sequence for entry in desk.entries()][-2:] == [MOST + STEP, MOST + STEP + 1]
    desk.is_whole = False
