"""What was set aside comes back early, a page at a time, once its target is well again."""

import pytest

from duebridge.store.delay_store import NO_CURSOR, DelayStore
from tests.support.desk import LEASE_MS, Desk, aside, envelope, names


def resume_all(store: DelayStore, tag: str = "", limit: int = 2) -> int:
    """Resume page by page; return how many pages it took."""
    cursor: tuple[str, str] | None = NO_CURSOR
    pages = 0
    while cursor is not None:
        reply = store.resume(tag, limit, cursor)
        cursor, pages = reply.cursor, pages + 1
        assert pages < 50, "it never ends"
    return pages


@pytest.mark.parametrize("tag", ["tag-of-t", ""])
@pytest.mark.parametrize("limit", [1, 2, 7, 10, 1000])
def test_resume_makes_all_ready_whatever_the_page(desk: Desk, tag: str, limit: int) -> None:
    desk.set_aside(*names(10))
    resume_all(desk.store, tag, limit)
    assert [desk.state_of(each) for each in names(10)] == ["ready"] * 10


def test_resume_keeps_the_order_of_the_due_instants(desk: Desk) -> None:
    desk.set_aside("b")
    desk.set_aside("a", delay_ms=1)
    resume_all(desk.store)
    assert desk.store.claim(2, LEASE_MS).ids == ["b", "a"]


def test_resume_takes_one_target_and_leaves_others_and_retries_alone(desk: Desk) -> None:
    for n, name in enumerate(names(12)):
        if n % 3 == 0:
            desk.retry(name, delay_ms=60_000)
        else:
            desk.set_aside(name, tag="tag-of-t" if n % 3 == 1 else "tag-of-u", delay_ms=60_000)
    resume_all(desk.store, "tag-of-t")
    assert [desk.state_of(each) for each in names(12)] == ["retry", "ready", "retry"] * 4
    resume_all(desk.store)
    assert [desk.state_of(each) for each in names(12)] == ["retry", "ready", "ready"] * 4


def test_resume_of_equal_scores_passes_over_those_that_stay(desk: Desk) -> None:
    claim = desk.unack(*names(9))
    tags = ["tag-of-u", "tag-of-t"] * 5
    desk.store.set_aside(
        claim.token, [aside(*each) for each in zip(claim.ids, [1000] * 9, tags, strict=False)]
    )
    resume_all(desk.store, "tag-of-t")
    assert [desk.state_of(each) for each in claim.ids] == ["retry", "ready"] * 4 + ["retry"]


@pytest.mark.parametrize("change", ["gone", "later", "sooner"])
def test_resume_skips_nobody_when_the_row_of_its_cursor_moved(desk: Desk, change: str) -> None:
    desk.retry("a", delay_ms=50_000)
    desk.set_aside(*names(4, "b"), delay_ms=60_000)
    cursor = desk.store.resume("tag-of-t", 1).cursor
    assert cursor is not None
    assert cursor[0] == "a"
    if change == "gone":
        assert desk.store.cancel("a") == "cancelled"
    else:
        moved_to = desk.clock() + (90_000 if change == "later" else 10)
        desk.client.zadd(desk.key("retry"), {"a": moved_to})
    for _ in range(9):
        if cursor is not None:
            cursor = desk.store.resume("tag-of-t", 1, cursor).cursor
    assert [desk.state_of(each) for each in names(4, "b")] == ["ready"] * 4


def test_resume_of_the_cursors_id_alone_begins_at_its_score(desk: Desk) -> None:
    desk.set_aside(*names(3), delay_ms=60_000)
    assert desk.store.resume("", 1000, ("nobody", "0")).moved == 3


def test_resume_stops_at_a_full_ready_and_goes_on_from_there(desk: Desk) -> None:
    desk.set_aside(*names(5))
    arguments = ("", 1000, "", "")
    _, moved, after, score = desk.run("resume", *arguments, 2)
    assert (moved, bool(score)) == (2, True)
    _, moved, *again = desk.run("resume", "", 1000, after, score, 2)
    assert (moved, again) == (0, [after, score])
    desk.store.claim(2, LEASE_MS)
    _, moved, _, score = desk.run("resume", "", 1000, after, score, 2)
    assert (moved, bool(score)) == (2, True)
    desk.store.claim(2, LEASE_MS)
    assert desk.run("resume", "", 1000, after, score, 2)[1::2] == [1, b""]


def test_resume_of_a_suspect_keeps_it_apart(desk: Desk) -> None:
    desk.suspect("a")
    desk.put_aside(desk.store.claim(1, LEASE_MS, alone=True))
    assert desk.store.resume().moved == 1
    assert desk.state_of("a") == "suspect"


def test_resume_of_a_ghost_leaves_it_to_the_claim(desk: Desk) -> None:
    desk.set_aside("a", "b")
    desk.lose_record("a")
    assert desk.store.resume().moved == 2
    assert desk.claim_all().ids == ["b"]
    assert desk.state_of("a") is None


def test_resume_counts_nothing_and_leaves_the_clock_running(desk: Desk) -> None:
    desk.set_aside("a", clock="start")
    before = desk.flight_of("a")
    desk.store.resume()
    assert desk.flight_of("a") == before


def test_resume_of_nothing_is_over_at_once(desk: Desk) -> None:
    assert desk.store.resume("tag-of-t").cursor is None
    desk.retry("a")
    desk.pending(envelope("b"))
    with desk.unchanged():
        assert desk.store.resume("tag-of-t") == (desk.store.next(), 0, None)
