"""Finds envelopes: by id on every route, by key, header and due window on one."""

from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import Response

from duebridge.admin.listing import STATES
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
    """The envelopes that a search found, and the cursor that continues it."""

    envelopes: tuple[EnvelopeDetails, ...] = ()
    cursor: str = ""
    looked: int = 0
    reached_ms: int = 0
    now_ms: int = 0
    error: str = ""


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
        if len(found.envelopes) == 1 and _is_by_id(visit.query):
            one = found.envelopes[0]
            return visit.go("envelope", route=one.route, id=one.id)
    return visit.page(
        "search.html",
        "search",
        422 if found and found.error else 200,
        found=found,
        names=names,
        asked={name: text_of(visit.query, name) for name in FIELDS},
        states=STATES,
        most_looked=MOST_LOOKED,
    )


FIELDS = ("route", "id", "key", "header", "value", "from", "to", "state")


def _is_asked(query: Mapping[str, str]) -> bool:
    return any(text_of(query, name) for name in FIELDS)


def _is_by_id(query: Mapping[str, str]) -> bool:
    return bool(query.get("id")) and not any(text_of(query, name) for name in FIELDS[2:])


def _find(visit: Visit, names: list[str]) -> SearchResult:
    query, now_ms = visit.query, visit.site.operator.now_ms()
    route = text_of(query, "route") or (names[0] if len(names) == 1 else "")
    if query.get("id"):
        routes = [visit.readable(route)] if route else names[:MOST_ROUTES]
        shown = [visit.site.operator.show(name, query["id"]) for name in routes]
        return SearchResult(tuple(filter(None, shown)), looked=len(routes), now_ms=now_ms)
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
        state=choice(query, "state", ("", *STATES)),
    )
