"""What is read of a shard: one id, pages, counts, and how it is polled."""

from collections.abc import Callable
from typing import Any

import pytest

from duebridge.errors import StoreError
from duebridge.store.wire.record import NOT_IN_FLIGHT
from duebridge.store.wire.replies import Entry
from tests.store.conftest import Opened
from tests.support.desk import NOW_MS, YEAR_MS, Desk, envelope, retrying


@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "unack", "retry", "dead"])
def test_get_tells_the_state_and_changes_nothing(desk: Desk, state: str) -> None:
    due = desk.clock() + 1000
    desk.bring(state, envelope("a", body=b"the body"))
    with desk.unchanged():
        entry = desk.store.get("a")
    assert entry is not None
    assert (entry.id, entry.state) == ("a", "ready" if state == "suspect" else state)
    assert entry.score_ms == desk.score_of("a", state)
    assert entry.record is not None
    assert entry.record.due_at_ms == due
    assert entry.content is not None
    assert (entry.content.body, entry.damage) == (b"the body", "")
    assert entry.flight == desk.flight_of("a")


def test_get_of_an_unknown_id_is_none_and_makes_no_key(desk: Desk) -> None:
    with desk.unchanged():
        assert desk.store.get("a") is None


@pytest.mark.parametrize(
    ("spoil", "said"), [("newer", "expected layout 2 or older"), (7, "prefix"), ("ghost", "")]
)
def test_get_of_what_cannot_be_read_says_so(desk: Desk, spoil: str | int, said: str) -> None:
    desk.retry("a")
    desk.spoil("a", spoil)
    entry = desk.store.get("a")
    assert entry is not None
    assert (entry.id, entry.state, entry.record, entry.content) == ("a", "retry", None, None)
    assert said in entry.damage
    assert entry.damage


def walk(desk: Desk, state: str, **options: Any) -> list[Entry]:
    """Every entry of every page."""
    entries, cursor = [], None
    while (page := desk.store.list(state, cursor=cursor, **options)).entries:
        entries += page.entries
        cursor = page.cursor
    return entries


PACKED = ("due_at_ms", "generation", "remember_ms", "content_hash", "blob")


@pytest.mark.parametrize("spoil", [None, "newer", 7, "ghost"])
@pytest.mark.parametrize("state", ["pending", "suspect", "dead"])
def test_list_packed_has_by_column_what_list_has(
    desk: Desk, state: str, spoil: str | int | None
) -> None:
    for number in range(5):
        due = desk.clock() + number
        desk.bring(state, envelope(f"id{number}", at=due, body=b"x" * number, remember="1h"))
    if spoil is not None:
        desk.spoil("id3", spoil)
    page = desk.store.list(state, limit=4)
    packed = desk.store.list_packed(state, limit=4)
    assert (packed.ids, packed.cursor) == (ids_of(page.entries), page.cursor)
    assert packed.scores_ms == [each.score_ms for each in page.entries]
    assert {packed.state} == {each.state for each in page.entries}
    for name in PACKED:
        wanted = [each.record and getattr(each.record, name) for each in page.entries]
        assert getattr(packed.records, name) == wanted, name
    assert desk.store.list_packed(state, cursor=packed.cursor).ids == ["id4"]


def ids_of(entries: list[Entry]) -> list[str]:
    return [each.id for each in entries]


@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "unack", "retry", "dead"])
def test_list_shows_each_state_and_changes_nothing(desk: Desk, state: str) -> None:
    desk.bring(state, "a", "b")
    with desk.unchanged():
        entries = walk(desk, state)
    assert ids_of(entries) == ["a", "b"]
    for entry in entries:
        assert entry == desk.store.get(entry.id)


def test_list_pages_in_the_order_of_scores_without_gap_or_repeat(desk: Desk) -> None:
    ids = [f"{n:02d}" for n in range(25)]
    desk.pending(*[envelope(name, f"{n // 4 + 1}s") for n, name in enumerate(ids)])
    assert ids_of(walk(desk, "pending", limit=4)) == ids
    assert ids_of(walk(desk, "pending", limit=1)) == ids


@pytest.mark.parametrize("is_moved", [True, False], ids=["moved", "gone"])
def test_list_goes_on_behind_an_id_that_has_left_its_place_and_skips_none(
    desk: Desk, is_moved: bool
) -> None:
    ids = [f"{n:02d}" for n in range(9)]
    desk.pending(*[envelope(name, f"{n + 1}s") for n, name in enumerate(ids)])
    page = desk.store.list("pending", limit=4)
    if is_moved:
        assert desk.store.reschedule("03", "+60000", YEAR_MS).status == "rescheduled"
    else:
        assert desk.store.cancel("03") == "cancelled"
    rest = desk.store.list("pending", limit=100, cursor=page.cursor)
    assert ids_of(rest.entries) == [*ids[4:], *["03"] * is_moved]


def test_list_within_bounds_takes_both_ends(desk: Desk) -> None:
    desk.pending(*[envelope(str(n), f"{n}s") for n in range(1, 7)])
    bounds = {"due_from_ms": NOW_MS + 2000, "due_to_ms": NOW_MS + 4000}
    assert ids_of(walk(desk, "pending", **bounds)) == ["2", "3", "4"]
    assert ids_of(walk(desk, "pending", limit=2, **bounds)) == ["2", "3", "4"]


def test_list_shows_no_more_bytes_than_asked_and_goes_on(desk: Desk) -> None:
    ids = [f"{n:02d}" for n in range(9)]
    desk.pending(*ids)
    largest = int(desk.client.hget(desk.key("meta"), "largest"))
    page = desk.store.list("pending", limit_bytes=3 * largest)
    assert ids_of(page.entries) == ids[:3]
    assert ids_of(walk(desk, "pending", limit_bytes=3 * largest)) == ids
    assert ids_of(walk(desk, "pending", limit_bytes=1)) == ids


def test_list_of_the_dead_for_ever_pages_through_them(open_desk: Opened) -> None:
    desk = open_desk(has_dead_letter=False)
    desk.dead("a", "b", "c")
    entries = walk(desk, "dead", limit=2)
    assert ids_of(entries) == ["a", "b", "c"]
    assert {each.score_ms for each in entries} == {-1}
    page = desk.store.list("dead", limit=2)
    assert desk.store.drop(["b"]) == ["dropped"]
    rest = desk.store.list("dead", cursor=page.cursor)
    assert ids_of(rest.entries) == ["c"]


def walk_behind_what_leaves(
    desk: Desk, state: str, limit: int, remove: Callable[[str], bool]
) -> list[str]:
    """The ids of every page, of which the last leaves before the next page is read."""
    found, cursor = list[str](), None
    while (page := desk.store.list(state, limit=limit, cursor=cursor)).entries:
        found += ids_of(page.entries)
        cursor = page.cursor
        assert remove(found[-1])
    return found


def test_list_whose_cursors_leave_has_each_id_of_one_instant_once_by_its_bytes(desk: Desk) -> None:
    ids = ["a", "B", "_", "ab", "é", "e", "\u00ff", "zz", "Z", "10", "9", "a b", "☃", "-", "A"]
    desk.pending(*[envelope(name, f"{1 + n // 12}s") for n, name in enumerate(ids)])
    found = walk_behind_what_leaves(
        desk, "pending", 2, lambda last: desk.store.cancel(last) == "cancelled"
    )
    assert found == [*sorted(ids[:12], key=str.encode), *sorted(ids[12:], key=str.encode)]


def test_list_of_the_dead_that_are_dropped_meanwhile_has_each_once(desk: Desk) -> None:
    ids = [f"{n:03d}" for n in range(50)]
    desk.dead(*ids)
    found = walk_behind_what_leaves(
        desk, "dead", 8, lambda last: desk.store.drop([last]) == ["dropped"]
    )
    assert found == ids


def test_list_shows_the_damaged_among_the_others(desk: Desk) -> None:
    desk.pending("a", "b", "c", "d")
    desk.make_newer("a")
    desk.lose_record("b")
    desk.replaced_record("c", lambda record: record[:9])
    entries = walk(desk, "pending")
    assert ids_of(entries) == ["a", "b", "c", "d"]
    assert [bool(each.damage) for each in entries] == [True, True, True, False]


def test_list_of_the_dead_tells_the_reason_of_one_whose_record_is_damaged(desk: Desk) -> None:
    desk.dead("a")
    whole = walk(desk, "dead")[0]
    desk.replaced_record("a", lambda record: record[:9])
    (entry,) = walk(desk, "dead")
    assert entry.damage
    assert entry.flight == whole.flight != NOT_IN_FLIGHT


def test_list_of_no_state_is_refused(desk: Desk) -> None:
    with pytest.raises(StoreError, match="expected one of the states, got nonsense"):
        desk.store.list("nonsense")


def test_stats_of_an_empty_shard_are_zero(desk: Desk) -> None:
    stats = desk.store.stats()
    assert stats == (desk.store.next(), 0, 0, 0, -1, 0, 0, 0, 0, -1, 0)
    assert (stats.oldest_due_age_ms, stats.journal_lag) == (0, None)


def test_figures_change_nothing_and_make_no_key(desk: Desk) -> None:
    desk.suspect("a")
    desk.unack("b")
    with desk.unchanged():
        desk.store.next()
        desk.store.stats()


def test_stats_count_what_will_be_due_within_a_minute_and_five(desk: Desk) -> None:
    delays = ("60s", "60001ms", "300s", "300001ms")
    desk.pending(*(envelope(delay, delay) for delay in delays))
    stats = desk.store.stats()
    assert (stats.due, stats.due_within_60s, stats.due_within_300s) == (0, 1, 3)


@pytest.mark.parametrize("state", ["ready", "suspect"])
def test_stats_know_the_oldest_due_wherever_it_waits(desk: Desk, state: str) -> None:
    due = desk.clock() + 1000
    desk.bring(state, "a")
    desk.pending("b")
    desk.clock.advance(10_000)
    stats = desk.store.stats()
    assert stats.oldest_due_at_ms == due
    assert stats.oldest_due_age_ms == desk.clock() - due


@pytest.mark.parametrize("state", ["unack", "retry", "ready"])
def test_stats_age_counts_from_due_and_not_from_the_last_retry(desk: Desk, state: str) -> None:
    claim = desk.unack("a")
    due = claim.leased[0].record.due_at_ms
    desk.clock.advance(10_000)
    if state != "unack":
        desk.store.retry(claim.token, [retrying("a", delay_ms=1_000)])
    if state == "ready":
        desk.clock.advance(1_000)
        desk.store.promote()
    assert desk.store.stats().oldest_due_at_ms == due
