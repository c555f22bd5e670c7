"""Finds envelopes of a route by id, key, header and due instant, a bounded part at a time.

An id is looked up. No index has keys and headers: the envelopes are looked through in the order of
`Listing`, so many a call, and the answer says how far that came.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from duebridge.admin.listing import PAGE, SUSPECT, ListedEnvelope, Listing, read_cursor
from duebridge.receipt import EnvelopeDetails
from duebridge.store.due_window import ANY_TIME, DueWindow
from duebridge.store.wire.poll import NONE
from duebridge.store.wire.record import EnvelopeContent
from duebridge.store.wire.replies import Entry

if TYPE_CHECKING:
    from duebridge.admin.operator import Operator

MOST_LOOKED = 5_000
MOST_BYTES = 32 * 1024 * 1024  # of records, as they are stored
_NOTHING = EnvelopeContent(body=None)


class SearchFilter(msgspec.Struct, frozen=True):
    """Conditions that must all hold; those left empty hold always.

    `header` is a name and a value, compared as text; without a value any does.
    """

    route: str
    id: str = ""
    key: bytes = b""
    header: tuple[str, str] = ("", "")
    window: DueWindow = ANY_TIME
    state: str = ""

    def has(self, entry: Entry) -> bool:
        """Whether an envelope is meant; one that cannot be read has no key and no header."""
        return (
            self.id in ("", entry.id)
            and self._stored_state in ("", entry.state)
            and self.window.has(entry)
            and self._has_content(entry.content or _NOTHING)
        )

    @property
    def _stored_state(self) -> str:
        """The state by which the store answers: of the ready, the listing has found suspects."""
        return "ready" if self.state == SUSPECT else self.state

    def _has_content(self, content: EnvelopeContent) -> bool:
        name, text = self.header
        return (not self.key or content.key == self.key) and (
            not name
            or any(name == each and text in ("", text_of(value)) for each, value in content.headers)
        )


class SearchPage(msgspec.Struct, frozen=True):
    """The envelopes found so far; `cursor` continues, "" at the end.

    `looked` counts the envelopes that were looked at. The last of them waits for the instant
    `reached_ms`: 0 if none was looked at, or it waits for none.
    """

    found: tuple[EnvelopeDetails, ...]
    cursor: str
    looked: int
    reached_ms: int


def search(
    operator: "Operator",
    wanted: SearchFilter,
    cursor: str = "",
    limit: int = 50,
    most_looked: int = MOST_LOOKED,
    most_bytes: int = MOST_BYTES,
) -> SearchPage:
    """Return at most `limit` envelopes that are meant; reads at most `most_looked` of the store.

    It stops earlier where their records are `most_bytes` in all. An envelope that changes its state
    between two pages may come twice or not at all. Raises `ConfigError` for an unknown route,
    `EnvelopeError` for an unknown state and for the cursor of another list, and `StoreError`.
    """
    if wanted.id:
        return _of_id(operator, wanted)
    after = read_cursor(cursor, wanted.route, wanted.state) if cursor else None
    listing = Listing(wanted.route, operator.stores(wanted.route), wanted.state)
    page = max(1, min(PAGE, most_looked // (2 * listing.sources)))
    most = max(1, most_looked - page * listing.sources)
    listed = listing.scan(window=wanted.window, after=after, page=page, most_bytes=most_bytes)
    return _page(wanted, listed, limit, most, most_bytes)


def text_of(value: object) -> str:
    """Return the value of a header as people search for it and see it."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _of_id(operator: "Operator", wanted: SearchFilter) -> SearchPage:
    entry = operator.entry(wanted.route, wanted.id)
    if entry is None:
        return SearchPage((), "", 0, 0)
    found = (EnvelopeDetails.of(wanted.route, entry),) if wanted.has(entry) else ()
    return SearchPage(found, "", 1, _instant(entry.score_ms))


def _page(
    wanted: SearchFilter, listed: Iterator[ListedEnvelope], limit: int, most: int, most_bytes: int
) -> SearchPage:
    found: list[EnvelopeDetails] = []
    looked = size = reached_ms = 0
    cursor = ""
    for envelope in listed:
        entry, looked = envelope.entry, looked + 1
        reached_ms = _instant(entry.score_ms)
        size += len(entry.record.blob) if entry.record else 0
        if wanted.has(entry):
            found.append(EnvelopeDetails.of(wanted.route, entry))
        if len(found) == limit or looked == most or size >= most_bytes:
            cursor = str(envelope.position)
            break
    return SearchPage(tuple(found), cursor, looked, reached_ms)


def _instant(score_ms: int) -> int:
    return 0 if score_ms == NONE else score_ms
