import pytest

from duebridge.store.record import NOT_IN_FLIGHT
from tests.store.conftest import Opened
from tests.store.desk import LEASE_MS, Desk, envelope


@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "unack", "retry", "dead"])
def test_get_tells_the_state_and_changes_nothing(desk: Desk, state: str) -> None:
    due = desk.clock() + 1000
    desk.bring(state, envelope("a", body=b"the body"))
    before = desk.snapshot()
    entry = desk.store.get("a")
    assert desk.snapshot() == before
    assert entry is not None
    assert (entry.id, entry.state) == ("a", "ready" if state == "suspect" else state)
    assert entry.score_ms == desk.score_of("a", state)
    assert entry.record is not None
    assert entry.record.due_at_ms == due
    assert entry.content is not None
    assert (entry.content.body, entry.damage) == (b"the body", "")
    assert entry.flight == desk.flight_of("a")


def test_get_of_an_unknown_id_is_none_and_makes_no_key(desk: Desk) -> None:
    before = desk.snapshot()
    assert desk.store.get("a") is None
    assert desk.snapshot() == before


def test_get_of_the_pending_has_no_flight(desk: Desk) -> None:
    desk.pending("a")
    entry = desk.store.get("a")
    assert entry is not None
    assert entry.flight == NOT_IN_FLIGHT


def test_get_of_the_dead_for_ever_has_no_instant(open_desk: Opened) -> None:
    desk = open_desk(has_dead_letter=False)
    desk.dead("a")
    entry = desk.store.get("a")
    assert entry is not None
    assert (entry.state, entry.score_ms) == ("dead", -1)


def test_get_tells_the_last_error(desk: Desk) -> None:
    desk.retry("a", error="NotLeader\nthe broker moved")
    entry = desk.store.get("a")
    assert entry is not None
    flight = entry.flight
    assert (flight.error_class, flight.error_message) == ("NotLeader", "the broker moved")


@pytest.mark.parametrize(
    ("spoil", "said"), [("newer", "expected layout 1 or older"), ("cut", "prefix"), ("ghost", "")]
)
def test_get_of_what_cannot_be_read_says_so(desk: Desk, spoil: str, said: str) -> None:
    desk.retry("a")
    if spoil == "newer":
        desk.make_newer("a")
    elif spoil == "cut":
        desk.replaced_record("a", lambda record: record[:7])
    else:
        desk.lose_record("a")
    entry = desk.store.get("a")
    assert entry is not None
    assert (entry.id, entry.state, entry.record, entry.content) == ("a", "retry", None, None)
    assert said in entry.damage
    assert entry.damage


def test_get_of_a_leased_one_tells_its_deadline(desk: Desk) -> None:
    desk.unack("a")
    entry = desk.store.get("a")
    assert entry is not None
    assert entry.score_ms == desk.clock() + LEASE_MS
