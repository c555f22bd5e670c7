"""Finds envelopes: by id on every route, by key, header and due window on one."""

from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import Response

from duebridge.admin.listing import LISTED
from duebridge.admin.search import SearchFilter, SearchPage, search
from duebridge.console.forms import choice, instant_ms, text_of
from duebridge.console.visit import Visit
from duebridge.errors import BridgeError, EnvelopeError, StoreError, UnknownRoute
from duebridge.receipt import EnvelopeDetails
from duebridge.store.due_window import DueWindow

PAGE = 50
MOST_LOOKED = 5_000  # a call
MOST_ROUTES = 200  # that one id is looked up on


class SearchResult(NamedTuple):
    """The envelopes that a search found, and the cursor that continues it.

    `routes` are those whose time line or cold tier may tell of an id that the store does not have.
    """

    envelopes: tuple[EnvelopeDetails, ...] = ()
    cursor: str = ""
    looked: int = 0
    reached_ms: int = 0
    now_ms: int = 0
    error: str = ""
    routes: tuple[str, ...] = ()


async def page(visit: Visit) -> Response:
    """Return the form and what it finds; one envelope found by its id alone is shown at once."""
    found: SearchResult | None = None
    names = await visit.run(visit.route_names)
    if _is_asked(visit.query):
        try:
            found = await visit.run(lambda: _find(visit, names))
        except (StoreError, UnknownRoute):
            raise
        except BridgeError as error:
            found = SearchResult(error=str(error))
        if _is_by_id(visit.query) and (one := _only_place(visit.query, found)):
            return visit.go("envelope", route=one[0], id=one[1])
    return visit.page(
        "search.html",
        "search",
        422 if found and found.error else 200,
        found=found,
        names=names,
        asked={name: text_of(visit.query, name) for name in FIELDS},
        ignores=bool(text_of(visit.query, "id")) and _has_filters(visit.query),
        states=LISTED,
        most_looked=MOST_LOOKED,
    )


FILTERS = ("key", "header", "value", "from", "to", "state")
FIELDS = ("route", "id", *FILTERS)


def _is_asked(query: Mapping[str, str]) -> bool:
    return any(text_of(query, name) for name in FIELDS)


def _is_by_id(query: Mapping[str, str]) -> bool:
    return bool(text_of(query, "id")) and not _has_filters(query)


def _has_filters(query: Mapping[str, str]) -> bool:
    return any(text_of(query, name) for name in FILTERS)


def _only_place(query: Mapping[str, str], found: SearchResult) -> tuple[str, str] | None:
    """Return route and id of the one envelope, or of the one time line that may tell of it."""
    places = [(each.route, each.id) for each in found.envelopes]
    places += [(route, text_of(query, "id")) for route in found.routes]
    return places[0] if len(places) == 1 else None


def _find(visit: Visit, names: list[str]) -> SearchResult:
    query, now_ms = visit.query, visit.site.operator.now_ms(*names)
    route = text_of(query, "route") or (names[0] if len(names) == 1 else "")
    if text_of(query, "id"):
        routes = [visit.readable(route)] if route else names[:MOST_ROUTES]
        shown = tuple(_by_id(visit, routes, query["id"]))
        untold = () if shown else tuple(routes)
        return SearchResult(shown, looked=len(routes), now_ms=now_ms, routes=untold)
    if not route:
        raise EnvelopeError("route: expected one, since only an id is looked up on every route")
    answer = search(
        visit.site.operator,
        _wanted(visit.readable(route), query),
        query.get("cursor", ""),
        limit=PAGE,
        most_looked=MOST_LOOKED,
    )
    return _found(answer, now_ms)


def _by_id(visit: Visit, routes: list[str], given: str) -> list[EnvelopeDetails]:
    """Look up an id on these routes; if it is nowhere, without the blanks that were pasted too."""
    for name in dict.fromkeys((given, given.strip())):
        shown = [visit.site.operator.show(route, name) for route in routes]
        if found := [each for each in shown if each is not None]:
            return found
    return []


def _found(answer: SearchPage, now_ms: int) -> SearchResult:
    return SearchResult(answer.found, answer.cursor, answer.looked, answer.reached_ms, now_ms)


def _wanted(route: str, query: Mapping[str, str]) -> SearchFilter:
    header, value = text_of(query, "header"), text_of(query, "value")
    if value and not header:
        raise EnvelopeError("header: expected the name of the header beside its value; got ''")
    return SearchFilter(
        route=route,
        key=text_of(query, "key").encode(),
        header=(header, value),
        window=DueWindow(instant_ms(query, "from"), instant_ms(query, "to")),
        state=choice(query, "state", ("", *LISTED)),
    )
