"""What falls due between instants: counted by the indexes, bucket by bucket."""

import pytest

from duebridge.errors import StoreError
from duebridge.store.delay_store import MOST_EDGES
from tests.support.desk import NOW_MS, Desk, envelope

EDGES = [NOW_MS, NOW_MS + 1000, NOW_MS + 2000, NOW_MS + 9000]


def test_histogram_counts_pending_by_due_from_each_edge_to_before_the_next(desk: Desk) -> None:
    desk.pending(*[envelope(f"{ms}", f"{ms}ms") for ms in (999, 1000, 1999, 2000, 8999, 9000)])
    with desk.unchanged():
        found = desk.store.histogram(EDGES)
    assert found == (desk.clock(), [1, 2, 2], [0, 0, 0])


def test_histogram_counts_retry_by_its_next_try_and_nothing_else_in_flight(desk: Desk) -> None:
    desk.dead("dead")
    desk.ready("ready")
    desk.suspect("suspect")
    desk.unack("unack")
    desk.retry("retry", delay_ms=1500)
    start = desk.clock()
    found = desk.store.histogram([0, start, start + 1000, start + 2000])
    assert (found.pending, found.retry) == ([0, 0, 0], [0, 0, 1])


def test_histogram_of_one_edge_has_no_bucket(desk: Desk) -> None:
    desk.pending("a")
    assert desk.store.histogram([NOW_MS])[1:] == ([], [])


def test_histogram_of_more_edges_than_it_takes_is_refused(desk: Desk) -> None:
    desk.pending("a")
    most = desk.store.histogram([NOW_MS + 100 * n for n in range(MOST_EDGES)])
    assert (len(most.pending), sum(most.pending)) == (MOST_EDGES - 1, 1)
    with pytest.raises(StoreError, match="LIMIT"):
        desk.store.histogram(range(MOST_EDGES + 1))
