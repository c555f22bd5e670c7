"""What the cold tier has leaves the store once; marks it left are kept until they are used."""

from pathlib import Path
from random import randbytes
from typing import Any, Literal

import pytest
import redis

from duebridge.amqp_fields import field
from duebridge.errors import StoreError
from duebridge.store.cold.notes import ColdNotes, Mark
from duebridge.store.keys import Shard
from duebridge.store.server.connection import open_connection
from tests.store.cold.cold_desk import sift
from tests.store.conftest import Opened
from tests.support.desk import DAY_MS, NOW_MS, YEAR_MS, Desk, envelope
from tests.support.redis.replicas import replicated

SHARD = Shard("marks", "r", 0)
MANY_MARKS = {f"xB/{number}": b"" for number in range(20_000)}


@pytest.fixture
def desk(open_desk: Opened) -> Desk:
    """A desk of a route with a cold tier."""
    return open_desk(cold_tier_ms=YEAR_MS)


def copies(desk: Desk, *ids: str) -> list[tuple[str, int]]:
    """The rows of a batch that was read now."""
    return [(name, desk.record_of(name).generation) for name in ids]


def answer(desk: Desk, batch: str, rows: list[tuple[str, int]], first: int = 0):
    """Rows done, removed and void."""
    return desk.store.demote(batch, first, rows)[1:]


def void(desk: Desk) -> set[str]:
    return {name[1:].decode() for name in desk.snapshot()["memory"] if name[:1] == b"x"}


def test_demote_removes_what_is_as_it_was_copied(desk: Desk) -> None:
    desk.pending("a", "b", "c")
    assert answer(desk, "B", copies(desk, "a", "b")) == (2, 2, 0)
    found = desk.check()
    assert set(found["envelopes"]) == {b"c"}
    entry = desk.last_entry()
    assert (entry.kind, [name for name, _ in entry.items]) == ("demoted", ["a", "b"])
    assert entry.items[0][1].due_at_ms == NOW_MS + 1000
    assert void(desk) == set()


def test_row_with_a_field_of_amqp_comes_back_in_the_layout_of_such(desk: Desk) -> None:
    given = envelope("a", headers=[("n", field("l", bytes(8)))])
    desk.pending(given)
    [(name, generation)] = copies(desk, "a")
    assert answer(desk, "B", [(name, generation)]) == (1, 1, 0)
    assert [each.status for each in desk.schedule(given, generations=[generation])] == ["accepted"]
    assert desk.client.hget(desk.key("envelopes"), "a")[0] == 2


def change(desk: Desk, how: str) -> None:
    match how:
        case "cancelled":
            assert desk.store.cancel("a") == "cancelled"
        case "rescheduled":
            assert desk.store.reschedule("a", "+9000", YEAR_MS).status == "rescheduled"
        case "replaced":
            desk.schedule(envelope("a", body=b"other"), mode="replace")
        case "ready" | "unack":
            desk.clock.advance(1000)
            desk.store.promote()
            if how == "unack":
                desk.store.claim(1, 30_000)


@pytest.mark.parametrize("how", ["cancelled", "rescheduled", "replaced", "ready", "unack"])
def test_demote_of_what_changed_since_changes_nothing_and_voids_the_copy(
    desk: Desk, how: str
) -> None:
    desk.pending("a")
    rows = copies(desk, "a")
    change(desk, how)
    before = desk.snapshot()
    assert answer(desk, "B", rows) == (1, 0, 1)
    after = desk.check()
    del before["memory"], after["memory"], before["forget"], after["forget"]
    assert after == before
    assert void(desk) == {"B/a"}


@pytest.mark.parametrize("how", ["rescheduled", "replaced"])
@pytest.mark.parametrize("rows_a_call", [1, 2])
def test_demote_of_what_was_copied_before_and_after_a_change_leaves_it(
    desk: Desk, rows_a_call: int, how: str
) -> None:
    desk.pending("a")
    rows = copies(desk, "a")
    change(desk, how)
    rows += copies(desk, "a")
    for first in range(0, 2, rows_a_call):
        answer(desk, "B", rows[first : first + rows_a_call], first)
    assert answer(desk, "B", []) == (2, 0, 2)
    assert (desk.state_of("a"), void(desk)) == ("pending", {"B/a"})


def test_demote_repeated_changes_nothing_and_answers_as_it_did(desk: Desk) -> None:
    desk.pending("a", "b")
    rows = copies(desk, "a", "b")
    desk.store.cancel("b")
    first = answer(desk, "B", rows)
    with desk.unchanged():
        desk.clock.advance(YEAR_MS - 1)
        assert answer(desk, "B", rows) == first == (2, 1, 1)


def test_demote_goes_on_where_it_was_interrupted(desk: Desk) -> None:
    desk.pending("a", "b", "c", "d")
    rows = copies(desk, "a", "b", "c", "d")
    assert answer(desk, "B", rows[:2]) == (2, 2, 0)
    assert answer(desk, "B", rows[1:3], first=1) == (3, 3, 0)
    assert answer(desk, "B", rows) == (4, 4, 0)
    assert void(desk) == set()
    assert desk.journal()[1:] == [("demoted", ["a", "b"]), ("demoted", ["c"]), ("demoted", ["d"])]


def test_demote_out_of_order_is_refused_and_changes_nothing(desk: Desk) -> None:
    desk.pending("a", "b")
    with desk.unchanged(), pytest.raises(StoreError, match="ORDER row 0 of B is next"):
        desk.store.demote("B", 1, copies(desk, "b"))


def test_demote_stays_within_its_bytes_and_says_how_far_it_came(desk: Desk) -> None:
    ids = [f"{n}" for n in range(9)]
    for name in ids:
        desk.pending(envelope(name, body=randbytes(256 * 1024)))
    rows = copies(desk, *ids)
    assert answer(desk, "B", rows) == (3, 3, 0)
    assert answer(desk, "B", rows[3:], first=3) == (6, 6, 0)
    assert answer(desk, "B", rows[6:], first=6) == (9, 9, 0)


def test_demote_of_1000_is_one_step_and_1001_is_refused(desk: Desk) -> None:
    ids = [f"{n:04d}" for n in range(1000)]
    desk.pending(*ids)
    rows = copies(desk, *ids)
    with pytest.raises(StoreError, match="LIMIT"):
        desk.store.demote("B", 0, [*rows, ("x", 1)])
    assert answer(desk, "B", rows) == (1000, 1000, 0)
    assert desk.check()["envelopes"] == {}


def test_demote_of_no_rows_says_how_far_the_batch_is(desk: Desk) -> None:
    assert answer(desk, "B", []) == (0, 0, 0)
    desk.pending("a")
    answer(desk, "B", copies(desk, "a"))
    assert answer(desk, "B", []) == (1, 1, 0)


def test_demote_without_a_cold_tier_is_refused(open_desk: Opened) -> None:
    desk = open_desk()
    desk.pending("a")
    with pytest.raises(StoreError, match="COLD expected a route with a cold tier"):
        desk.store.demote("B", 0, copies(desk, "a"))
    assert desk.state_of("a") == "pending"


@pytest.mark.parametrize("kept_bytes", [0, 5, 38])
def test_demote_of_a_damaged_record_leaves_it_to_the_workers(desk: Desk, kept_bytes: int) -> None:
    desk.pending("a")
    rows = copies(desk, "a")
    desk.replaced_record("a", lambda record: record[:kept_bytes])
    assert answer(desk, "B", rows) == (1, 0, 1)
    assert desk.score_of("a", "pending") is not None


@pytest.mark.parametrize("is_earlier", [False, True], ids=["this version", "an earlier one"])
def test_void_copy_is_known_until_no_file_can_have_it(desk: Desk, is_earlier: bool) -> None:
    notes(desk).note_first(1)
    answer(desk, "B", [("gone", desk.generation())])
    if is_earlier:  # it left no generations
        for name, size in (("dB", 24), ("xB/gone", 6)):
            left = desk.client.hget(desk.key("memory"), name)[:size]
            desk.client.hset(desk.key("memory"), name, left)
    desk.clock.advance(YEAR_MS)
    assert desk.store.forget()[1] == 0
    assert void(desk) == {"B/gone"}
    sift(desk, floor=desk.generation() + 1)
    desk.clock.advance(DAY_MS)
    assert desk.store.forget()[1] == 2, "and the progress of its batch"
    assert void(desk) == set()


@pytest.mark.parametrize("days", [(10, 365), (365, 1)], ids=["raised", "lowered"])
def test_demote_goes_on_where_it_was_whatever_became_of_max_delay(
    desk: Desk, days: tuple[int, int]
) -> None:
    notes(desk).note_first(1)
    desk.pending("a", "b")
    rows = copies(desk, "a", "b")
    first, second = (desk.again(cold_tier_ms=each * DAY_MS) for each in days)
    assert first.demote("B", 0, rows[:1])[1:] == (1, 1, 0)
    for _ in range(2):
        desk.clock.advance(11 * DAY_MS)
        assert second.demote("B", 0, [])[1:] == (1, 1, 0), "not looked at yet"
        desk.store.forget()
    assert second.demote("B", 0, rows)[1:] == (2, 2, 0)
    assert void(desk) == set()


def test_demote_goes_on_with_the_progress_that_an_earlier_version_left(desk: Desk) -> None:
    notes(desk).note_first(1)
    desk.pending("a", "b")
    rows = copies(desk, "a", "b")
    answer(desk, "B", rows[:1])
    left = desk.client.hget(desk.key("memory"), "dB")[:24]
    desk.client.hset(desk.key("memory"), "dB", left)
    desk.clock.advance(2 * YEAR_MS)
    desk.store.forget()
    assert answer(desk, "B", rows) == (2, 2, 0)


@pytest.mark.parametrize("note", ["hydrated_until", "hydrating_until"])
def test_demote_leaves_what_is_due_before_a_hydrate_brings_back(
    desk: Desk, note: Literal["hydrated_until", "hydrating_until"]
) -> None:
    """The batch waited, read or not, behind the hydrate: the next one may come too late."""
    notes(desk).note_first(1)
    desk.pending(envelope("soon", at=NOW_MS + 9), envelope("later", at=NOW_MS + 10))
    rows = copies(desk, "soon", "later")
    desk.store.note(note, NOW_MS + 10)
    assert answer(desk, "B", rows) == (2, 1, 1)
    assert (desk.state_of("soon"), desk.state_of("later")) == ("pending", None)
    assert void(desk) == {"B/soon"}


def test_demote_leaves_what_a_hydrate_may_note_however_another_moves_its_end(desk: Desk) -> None:
    """A horizon that was made shorter counts once a hydrate has noted it."""
    desk.pending(envelope("a", at=NOW_MS + 9))
    notes(desk).note_hydrated(NOW_MS + 10)
    notes(desk).note_hydrating(NOW_MS + 5)
    assert notes(desk).kept_until() == NOW_MS + 10
    assert answer(desk, "B", copies(desk, "a")) == (1, 0, 1)
    notes(desk).note_hydrated(NOW_MS + 5)
    assert notes(desk).kept_until() == NOW_MS + 5
    assert answer(desk, "C", copies(desk, "a")) == (1, 1, 0)


def test_note_of_a_hydrate_that_lost_its_lease_is_refused(desk: Desk) -> None:
    assert desk.store.occupy("A", 1000, "hydrate on one").did
    notes(desk).note_hydrating(NOW_MS + 5, "A")
    desk.clock.advance(1000)
    assert desk.store.occupy("B", 1000, "hydrate on two").did
    for note in (notes(desk).note_hydrating, notes(desk).note_hydrated):
        with desk.unchanged(), pytest.raises(StoreError, match="hydrate on two has it since"):
            note(NOW_MS + 3, "A")


def notes(desk: Desk) -> ColdNotes:
    return ColdNotes(desk.connection, desk.shard)


def test_marks_are_every_tombstone_and_void_copy_and_nothing_else(desk: Desk) -> None:
    desk.pending("alive")
    now = desk.generation()
    desk.store.cancel("a")
    desk.store.reschedule("b/ü", "+5000", YEAR_MS)
    desk.store.demote("B", 0, [("c/d", 7)])
    assert sorted(notes(desk).marks()) == [
        Mark("ta", "a", "", now, 0, now),
        Mark("talive", "alive", "", now - 1, 0, now - 1, now - 1),
        Mark("tb/ü", "b/ü", "", now, NOW_MS + 5000, 0),
        Mark("xB/c/d", "c/d", "B", 0, 0, 0),
    ]


@pytest.mark.parametrize("pages", [1, 3, 7])
def test_marks_are_complete_where_another_server_takes_over_between_two_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    """An address that follows the master: the same client, and another server's cursors."""
    with replicated(tmp_path, replicas=1) as servers:
        connection = open_connection(servers.url)
        client: Any = connection.client
        client.hset(SHARD.key("memory"), mapping=MANY_MARKS)
        servers.await_caught_up()
        scan, calls = client.hscan, iter(range(1_000_000))

        def hscan(*given: Any, **named: Any) -> Any:
            if next(calls) == pages:
                client.connection_pool = redis.ConnectionPool(port=servers.replicas[0].port)
            return scan(*given, **named)

        monkeypatch.setattr(client, "hscan", hscan)
        found = ColdNotes(connection, SHARD).marks()
        connection.close()
    assert {mark.name for mark in found} == set(MANY_MARKS)


def test_new_generation_is_greater_than_all_before_and_less_than_all_later(desk: Desk) -> None:
    desk.pending("a")
    made = notes(desk).new_generation()
    desk.pending("b")
    assert desk.record_of("a").generation < made < desk.record_of("b").generation


def test_hydrated_until_is_what_was_noted_and_in_every_poll(desk: Desk) -> None:
    assert not desk.store.next().has_cold
    notes(desk).note_first(NOW_MS + 5)
    notes(desk).note_first(NOW_MS + 9)
    assert desk.store.next().cold_left_ms == 5
    notes(desk).note_hydrated(NOW_MS + 7)
    assert desk.store.next().cold_left_ms == 7


def names(desk: Desk) -> set[bytes]:
    return {name for name in desk.check()["memory"] if name[:1] in (b"t", b"x")}


def test_lift_drops_tombstones_and_void_copies(desk: Desk) -> None:
    desk.again(cold_tier_ms=0).schedule([envelope("other")], max_delay_ms=YEAR_MS)
    desk.store.cancel("a")
    desk.store.reschedule("b", "+5000", YEAR_MS)
    desk.store.demote("B", 0, [("c/d", 1)])
    assert names(desk) == {b"ta", b"tb", b"xB/c/d"}
    assert desk.store.lift(desk.generation() + 1, ["ta", "tb", "xB/c/d"]) == 3
    assert names(desk) == set()


def test_lift_keeps_a_tombstone_that_was_left_meanwhile(desk: Desk) -> None:
    desk.pending("other")
    desk.store.cancel("a")
    began = 2  # the counter stood at 1
    desk.pending("another")
    desk.store.cancel("a")
    assert desk.store.lift(began, ["ta"]) == 0
    assert names(desk) == {b"ta", b"tother", b"tanother"}


def test_lift_of_what_is_not_there_changes_nothing(desk: Desk) -> None:
    with desk.unchanged():
        assert desk.store.lift(2**47, ["tnobody", "xB/nobody"]) == 0


def test_lift_of_1000_is_one_step_and_1001_is_refused(desk: Desk) -> None:
    given = [f"t{n:04d}" for n in range(1000)]
    for name in given:
        desk.store.cancel(name[1:])
    with pytest.raises(StoreError, match="LIMIT"):
        desk.store.lift(2**47, [*given, "x"])
    assert desk.store.lift(2**47, given) == 1000


def test_demote_of_what_was_claimed_before_keeps_its_attempts(desk: Desk) -> None:
    desk.dead("a")
    desk.store.replay(["a"], [YEAR_MS])
    assert answer(desk, "B", copies(desk, "a")) == (1, 0, 1)
    assert desk.flight_of("a").attempt == 1
