"""Envelopes are found by id, key, header and due instant, and listed, a bounded part at a time."""

import os
from itertools import islice
from typing import Any

import pytest

from duebridge.admin.listing import Listing
from duebridge.admin.search import SearchFilter, SearchPage, search
from duebridge.envelope import Envelope
from duebridge.errors import ConfigError, EnvelopeError
from duebridge.store.delay_store import DelayStore
from duebridge.store.due_window import ANY_TIME, DueWindow
from duebridge.store.wire.replies import Entry
from tests.acceptance.desk_of_operator import HOUR_MS, ORDERS, REMINDERS, OperatorsDesk
from tests.support.servers import wait_until


def ids(page: SearchPage) -> list[str]:
    return [each.id for each in page.found]


def all_pages(desk: OperatorsDesk, wanted: SearchFilter, **how: Any) -> list[SearchPage]:
    pages = [search(desk.operator, wanted, **how)]
    while pages[-1].cursor:
        pages.append(search(desk.operator, wanted, pages[-1].cursor, **how))
    return pages


def test_search_by_id_looks_at_one_envelope_in_any_state(desk: OperatorsDesk) -> None:
    desk.pending(ORDERS, {f"p{n}": HOUR_MS for n in range(30)}, key=b"k")
    desk.dead(ORDERS, "d")
    page = search(desk.operator, SearchFilter(ORDERS, id="p7", key=b"k"))
    assert (ids(page), page.looked, page.cursor) == (["p7"], 1, "")
    assert page.reached_ms == desk.now_ms + HOUR_MS
    assert ids(search(desk.operator, SearchFilter(ORDERS, id="d"))) == ["d"]
    assert ids(search(desk.operator, SearchFilter(ORDERS, id="d", state="pending"))) == []
    assert search(desk.operator, SearchFilter(ORDERS, id="none")) == SearchPage((), "", 0, 0)


HEADERS = {"tenant": "a", "raw": b"\xffb", "count": 7, "flag": True, "none": None}
SEARCHES = [
    ({"key": b"k-1"}, True),
    ({"key": b"k"}, False),
    ({"header": ("tenant", "a")}, True),
    ({"header": ("tenant", "b")}, False),
    ({"header": ("Tenant", "a")}, False),
    ({"header": ("tenant", "")}, True),
    ({"header": ("other", "")}, False),
    ({"header": ("raw", "\\xffb")}, True),
    ({"header": ("count", "7")}, True),
    ({"header": ("flag", "true")}, True),
    ({"header": ("none", "")}, True),
    ({"key": b"k-1", "header": ("tenant", "b")}, False),
    ({"state": "pending"}, True),
    ({"state": "retry"}, False),
]


@pytest.mark.parametrize(("wanted", "is_found"), SEARCHES)
def test_search_finds_what_meets_every_condition(
    desk: OperatorsDesk, wanted: dict[str, Any], is_found: bool
) -> None:
    desk.pending(ORDERS, {"other": HOUR_MS})
    desk.pending(ORDERS, {"a": HOUR_MS}, key=b"k-1", headers=HEADERS)
    page = search(desk.operator, SearchFilter(ORDERS, **wanted))
    assert ("a" in ids(page)) is is_found
    assert page.cursor == ""


def test_search_within_a_window_does_not_look_at_what_is_pending_outside(
    desk: OperatorsDesk,
) -> None:
    desk.pending(ORDERS, {f"{hour}h": hour * HOUR_MS for hour in range(1, 60)})
    window = DueWindow(desk.now_ms + 3 * HOUR_MS, desk.now_ms + 5 * HOUR_MS)
    page = search(desk.operator, SearchFilter(ORDERS, window=window))
    assert (ids(page), page.looked) == (["3h", "4h", "5h"], 3)
    desk.dead(ORDERS, "due-before")
    page = search(desk.operator, SearchFilter(ORDERS, window=window))
    assert (ids(page), page.looked) == (["3h", "4h", "5h"], 4)


def test_search_page_is_bounded_says_how_far_it_came_and_goes_on(desk: OperatorsDesk) -> None:
    every = {f"{n:03d}": HOUR_MS + n for n in range(300)}
    desk.pending(ORDERS, {name: ms for name, ms in every.items() if name[-1] != "7"}, key=b"no")
    desk.pending(ORDERS, {name: ms for name, ms in every.items() if name[-1] == "7"}, key=b"yes")
    first = search(desk.operator, SearchFilter(ORDERS, key=b"yes"), most_looked=100)
    assert 0 < first.looked <= 100
    assert first.reached_ms == desk.now_ms + HOUR_MS + first.looked - 1
    pages = all_pages(desk, SearchFilter(ORDERS, key=b"yes"), most_looked=100)
    assert [name for page in pages for name in ids(page)] == [n for n in every if n[-1] == "7"]
    assert sum(page.looked for page in pages) == 300
    few = all_pages(desk, SearchFilter(ORDERS, key=b"yes"), limit=7)
    assert [len(page.found) for page in few] == [7, 7, 7, 7, 2]


def test_search_reads_no_more_of_the_store_than_it_may(
    desk: OperatorsDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.send(ORDERS, *[Envelope.new(b"x", id=f"{n}", delay="1h") for n in range(2_000)])
    read = pages_read(monkeypatch)
    page = search(desk.operator, SearchFilter(ORDERS, key=b"none"), most_looked=1_000)
    assert page.cursor
    assert 500 <= page.looked <= sum(map(len, read)) <= 1_000


def test_first_found_is_preceded_by_no_more_bytes_than_may_be(
    desk: OperatorsDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shard's first page is read by then."""
    desk.send(ORDERS, *[Envelope.new(os.urandom(1000), id=f"{n}", delay="1h") for n in range(300)])
    read = pages_read(monkeypatch)
    search(desk.operator, SearchFilter(ORDERS, state="pending"), limit=1, most_bytes=30_000)
    next(Listing(ORDERS, desk.stores(ORDERS), "pending").walk(most_bytes=30_000))
    sizes = [sum(len(each.record.blob) for each in page if each.record) for page in read]
    assert len(sizes) == 2 * 3, "a page of each of three shards, twice"
    assert max(sizes) <= 30_000 // 3


def pages_read(monkeypatch: pytest.MonkeyPatch) -> list[list[Entry]]:
    """The pages that are read of the store from now on."""
    read: list[list[Entry]] = []
    listed = DelayStore.list

    def counted(store: DelayStore, *given: Any, **how: Any) -> Any:
        page = listed(store, *given, **how)
        read.append([*page.entries])
        return page

    monkeypatch.setattr(DelayStore, "list", counted)
    return read


def test_search_stops_where_the_records_are_too_many_bytes_and_goes_on(
    desk: OperatorsDesk,
) -> None:
    desk.send(REMINDERS, *[Envelope.new(bytes([n]) * 400, id=f"{n}", delay="1h") for n in range(9)])
    pages = all_pages(desk, SearchFilter(REMINDERS), most_bytes=1_000)
    assert [len(page.found) for page in pages] == [3, 3, 3, 0]
    assert sorted(name for page in pages for name in ids(page)) == [f"{n}" for n in range(9)]


def test_search_of_suspects_leaves_out_what_is_ready_beside_them(desk: OperatorsDesk) -> None:
    (store,) = desk.operator.stores(REMINDERS)
    desk.send(REMINDERS, Envelope.new(b"x", id="suspect", delay="0ms"))
    wait_until(lambda: store.promote().moved, "it to be due")
    for _ in range(2):
        assert store.claim(1, 1).ids == ["suspect"]
        wait_until(lambda: bool(store.reclaim().moved), "its lease to run out")
    desk.send(REMINDERS, Envelope.new(b"x", id="sound", delay="0ms"))
    wait_until(lambda: store.promote().moved, "it to be due")
    for state, expected in (("suspect", ["suspect"]), ("ready", ["suspect", "sound"])):
        page = search(desk.operator, SearchFilter(REMINDERS, state=state))
        assert ids(page) == expected


def test_search_of_nothing_is_at_its_end(desk: OperatorsDesk) -> None:
    assert search(desk.operator, SearchFilter(REMINDERS)) == SearchPage((), "", 0, 0)


def test_search_of_what_there_is_not_is_refused(desk: OperatorsDesk) -> None:
    with pytest.raises(ConfigError, match="got 'nothing'"):
        search(desk.operator, SearchFilter("nothing"))
    with pytest.raises(EnvelopeError, match="state: expected one of"):
        search(desk.operator, SearchFilter(ORDERS, state="asleep"))
    with pytest.raises(EnvelopeError, match="cursor: expected"):
        search(desk.operator, SearchFilter(ORDERS), "nonsense")


PAGE = 37


@pytest.mark.parametrize("state", ["", "pending"])
@pytest.mark.parametrize("is_within", [False, True])
def test_pages_of_one_instant_have_each_once_while_others_are_cancelled(
    desk: OperatorsDesk, state: str, *, is_within: bool
) -> None:
    at_ms = desk.now_ms + HOUR_MS
    kept = [f"{letter}{number}" for letter in ("Z", "a", "é") for number in range(200)]
    gone = [f"{name}-gone" for name in kept[::5]]
    desk.send(ORDERS, *[Envelope.new(b"x", id=name, at=at_ms) for name in (*kept, *gone)])
    listing = Listing(ORDERS, desk.stores(ORDERS), state)
    window = DueWindow(at_ms, at_ms) if is_within else ANY_TIME
    found: list[str] = []
    page = list(islice(listing.walk(window=window), PAGE))
    while page:
        found += [each.entry.id for each in page]
        shown_gone = [each for each in found if each.endswith("-gone")]
        desk.operator.cancel(ORDERS, [*shown_gone, *gone[len(found) :: PAGE]])
        page = list(islice(listing.walk(window=window, after=page[-1].position), PAGE))
    assert len(found) == len(set(found))
    assert set(kept) <= set(found)
