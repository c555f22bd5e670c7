"""Lists the envelopes of a route: all its shards in one order, page by page, resumable.

Envelopes are ordered by the instant they wait for: pending and ready by their due instant (ready
after a retry by the end of its delay), retry by the end of its delay, unack by the lease's
deadline, dead by the next shunt; envelopes without such an instant come last. No call reads more
than a page.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import NamedTuple

import msgspec

from duebridge.admin.cursors import cursor_of, position_of
from duebridge.errors import EnvelopeError
from duebridge.store.calls.reading_calls import MAX_BATCH_BYTES
from duebridge.store.delay_store import DelayStore
from duebridge.store.due_window import ANY_TIME, DueWindow
from duebridge.store.wire.poll import NONE
from duebridge.store.wire.replies import Entry, Page

STATES = ("pending", "ready", "unack", "retry", "dead")
SUSPECT = "suspect"  # ready, and claimed alone
LISTED = (*STATES, SUSPECT)
PAGE = 100
LEAST_PAGE = 10

_NO_ID = "\n"  # not a valid id: a page behind it begins with its score
_NEVER_MS = 2**63


class PageSize(NamedTuple):
    """The most that a page of one source has: envelopes, and bytes of records, but at least one."""

    envelopes: int
    bytes: int


class ListPosition(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A position in a listing: behind this id, in this source, with this score."""

    route: str
    state: str
    source: int
    id: str
    score_ms: int

    def __str__(self) -> str:
        return cursor_of(self)


class ListedEnvelope(NamedTuple):
    """An envelope of a listing, and the position behind it."""

    entry: Entry
    position: ListPosition


def read_cursor(text: str, route: str, state: str) -> ListPosition:
    """Return a cursor's position; raises `EnvelopeError` for a cursor of another list."""
    try:
        position = position_of(text, ListPosition)
    except ValueError as error:
        raise EnvelopeError(f"cursor: expected one that ls printed; got {text!r}") from error
    if (position.route, position.state) != (route, state):
        raise EnvelopeError(
            f"cursor: expected one of route {route}, state {state or 'any'};"
            f" got one of route {position.route}, state {position.state or 'any'}"
        )
    return position


class Listing:
    """Walks the envelopes of a route in one state, or with state "" in any.

    Suspects are ready; those alone are listed by "suspect".
    An envelope that changes its state meanwhile may come twice or not at all; others come once.
    """

    def __init__(self, route: str, stores: Sequence[DelayStore], state: str = "") -> None:
        """Raises `EnvelopeError` for an unknown state."""
        if state and state not in LISTED:
            raise EnvelopeError(f"state: expected one of {', '.join(LISTED)}; got {state!r}")
        self._route = route
        self._state = state
        states = [state] if state else [*STATES]
        if "ready" in states:
            states.append(SUSPECT)  # people call it ready
        self._sources = [(store, one) for store in stores for one in states]

    def walk(
        self,
        *,
        window: DueWindow = ANY_TIME,
        after: ListPosition | None = None,
        limit: int | None = None,
        most_bytes: int | None = None,
    ) -> Iterator[ListedEnvelope]:
        """Yield at most `limit` envelopes behind a position; raises `StoreError`.

        Pending envelopes are looked up by the window; other states are read through. A yielded
        envelope may be removed at once: the walk does not depend on it. What is read ahead has
        `most_bytes` of records in all, or one of each source.
        """
        page = PAGE if limit is None else max(LEAST_PAGE, limit // self.sources + 1)
        listed = self._merged(window, after, self._page_size(min(page, PAGE), most_bytes))
        return islice((found for found in listed if window.has(found.entry)), limit)

    @property
    def sources(self) -> int:
        """The number of lists that are merged, one for each shard and state."""
        return len(self._sources)

    def scan(
        self,
        *,
        window: DueWindow = ANY_TIME,
        after: ListPosition | None = None,
        page: int,
        most_bytes: int,
    ) -> Iterator[ListedEnvelope]:
        """Yield every envelope that `walk` reads, in the window or not; raises `StoreError`.

        Each source has read at most a page beyond what was yielded of it.
        """
        return self._merged(window, after, self._page_size(page, most_bytes))

    def _page_size(self, envelopes: int, most_bytes: int | None) -> PageSize:
        """Return the size of a page if those of all sources may have so many bytes together."""
        share = MAX_BATCH_BYTES if most_bytes is None else max(1, most_bytes // self.sources)
        return PageSize(envelopes, min(share, MAX_BATCH_BYTES))

    def _merged(
        self, window: DueWindow, after: ListPosition | None, page: PageSize
    ) -> Iterator[ListedEnvelope]:
        sources = [
            self._of_source(number, window, after, page) for number in range(len(self._sources))
        ]
        return merge(*sources, key=lambda found: _order(found.position.score_ms))

    def _of_source(
        self, number: int, window: DueWindow, after: ListPosition | None, page: PageSize
    ) -> Iterator[ListedEnvelope]:
        if after and after.score_ms == NONE and number < after.source:
            return  # read to its end
        for found in self._pages(number, window, after, page):
            for entry in found.entries:
                yield ListedEnvelope(entry, self._position(number, entry))

    def _pages(
        self, number: int, window: DueWindow, after: ListPosition | None, size: PageSize
    ) -> Iterator[Page]:
        """Yield each page; the next one begins behind it, whatever became of its envelopes."""
        store, state = self._sources[number]
        least_ms, most_ms = window if state == "pending" else ANY_TIME
        listed = partial(store.list, state, limit=size.envelopes, limit_bytes=size.bytes)
        begin = _begin(after, number, least_ms)
        page = listed(cursor=begin, due_from_ms=least_ms, due_to_ms=most_ms)
        while page.cursor is not None:
            yield page
            page = listed(cursor=page.cursor, due_to_ms=most_ms)

    def _position(self, number: int, entry: Entry) -> ListPosition:
        return ListPosition(self._route, self._state, number, entry.id, entry.score_ms)


def _begin(after: ListPosition | None, number: int, least_ms: int | None) -> tuple[str, int] | None:
    """Return the position at which a source continues; equal scores are ordered by source."""
    if after is None or _order(after.score_ms) < (least_ms or 0):
        return None
    if number == after.source:
        return after.id, after.score_ms
    return _NO_ID, after.score_ms + (number < after.source)


def _order(score_ms: int) -> int:
    return _NEVER_MS if score_ms == NONE else score_ms
