"""A later life of a route binds the cold rows of an earlier one, whose files survived it."""

from collections.abc import Callable

import pytest

from duebridge.store.registry import Registry
from tests.store.cold.cold_desk import Row, begin, demoted, far, hydrate
from tests.support.desk import Desk, envelope
from tests.support.servers import wait_until


def purge(desk: Desk) -> None:
    """Remove the route, as `duebridge store purge` does."""
    Registry(desk.connection, desk.shard.namespace).remove_route(desk.shard.route, 1)


BEGIN_ANEW = pytest.mark.parametrize("end", [purge, Desk.delete], ids=["purged", "lost"])


def cold_in_an_earlier_life(desk: Desk, end: Callable[[Desk], None]) -> Row:
    """Let x go cold and begin another life of the route, in which no job has run."""
    row = demoted(desk, "x")
    end(desk)
    before = desk.client.time()
    wait_until(lambda: desk.client.time() >= (before[0], before[1] + 1000), "a ms of the server")
    desk.open()
    return row


@BEGIN_ANEW
def test_cancel_in_another_life_binds_cold_rows_of_the_earlier_one(
    desk: Desk, end: Callable[[Desk], None]
) -> None:
    row = cold_in_an_earlier_life(desk, end)
    assert desk.store.cancel("x") == "recorded"
    assert hydrate(desk, row) == "cancelled"
    assert desk.state_of("x") is None


@BEGIN_ANEW
def test_cancel_of_what_lives_in_another_life_ends_cold_rows_of_the_earlier_one(
    desk: Desk, end: Callable[[Desk], None]
) -> None:
    row = cold_in_an_earlier_life(desk, end)
    assert [each.status for each in desk.schedule(far("x"))] == ["accepted"]
    assert desk.store.cancel("x") == "cancelled"
    assert hydrate(desk, row) == "duplicate"
    assert desk.state_of("x") is None


@BEGIN_ANEW
def test_schedule_in_another_life_ends_cold_rows_of_the_earlier_one(
    desk: Desk, end: Callable[[Desk], None]
) -> None:
    row = cold_in_an_earlier_life(desk, end)
    begin(desk)
    assert [each.status for each in desk.schedule(far("x", b"other"))] == ["accepted"]
    assert hydrate(desk, row) == "duplicate"
    assert desk.store.cancel("x") == "cancelled"
    assert hydrate(desk, row) == "duplicate"


@BEGIN_ANEW
def test_hydrate_in_another_life_brings_back_what_nothing_binds(
    desk: Desk, end: Callable[[Desk], None]
) -> None:
    row = cold_in_an_earlier_life(desk, end)
    assert hydrate(desk, row) == "accepted"


def test_open_counts_no_skipped_generation_as_scheduled(desk: Desk) -> None:
    assert desk.store.stats().scheduled == 0
    desk.pending("a", envelope("b"))
    assert desk.store.stats().scheduled == 2
