"""How much is set aside in a shard for each target, counted some pages at a time."""

from collections import Counter
from collections.abc import Iterator, Mapping

from duebridge.store.batching import CALL_ROWS
from duebridge.store.delay_store import NO_CURSOR, DelayStore
from duebridge.store.wire.aside_page import AsidePage


def aside_pages(store: DelayStore, cursor: tuple[str, str], most_pages: int) -> Iterator[AsidePage]:
    """Yield pages of what is set aside from a cursor on, up to the last of the shard."""
    for _ in range(most_pages):
        page = store.count_aside(CALL_ROWS, cursor)
        yield page
        if page.cursor is None:
            return
        cursor = page.cursor


class AsideCount:
    """Counts what is set aside by the tag of its target, round after round through the shard."""

    def __init__(self) -> None:
        self._latest: Counter[str] = Counter()  # of the latest whole round
        self._counting: Counter[str] = Counter()
        self._cursor = NO_CURSOR

    @property
    def by_tag(self) -> Mapping[str, int]:
        """The counts of the latest round, and at least what this one found so far."""
        return self._latest | self._counting

    def go_on(self, store: DelayStore, most_pages: int) -> None:
        """Look at some pages, up to the end of a round; raises `StoreError`."""
        for page in aside_pages(store, self._cursor, most_pages):
            self._counting.update(page.counts)
            self._cursor = page.cursor or NO_CURSOR
            if page.cursor is None:
                self._latest, self._counting = self._counting, Counter()

    def forget(self) -> None:
        """Reset: nothing is set aside."""
        self._latest, self._counting, self._cursor = Counter(), Counter(), NO_CURSOR
