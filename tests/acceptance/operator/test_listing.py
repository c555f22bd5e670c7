"""Pages of a listing whose envelopes wait for one instant, over three shards."""

from itertools import islice

import pytest

from duebridge.admin.listing import Listing
from duebridge.envelope import Envelope
from duebridge.store.due_window import ANY_TIME, DueWindow
from duebridge.store.server.connection import Connection
from tests.acceptance.desk_of_operator import HOUR_MS, ORDERS, OperatorsDesk

PAGE = 37


@pytest.mark.parametrize("state", ["", "pending"])
@pytest.mark.parametrize("is_within", [False, True])
def test_pages_of_one_instant_have_each_once_while_others_are_cancelled(
    connection: Connection, state: str, *, is_within: bool
) -> None:
    desk = OperatorsDesk(connection)
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
