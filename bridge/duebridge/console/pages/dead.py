"""Dead letters: why they died, and their replay or drop, which a dry run shows first."""

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from starlette.responses import Response

from duebridge.admin.dead import DeadFilter, list_dead, reason_number
from duebridge.admin.listing import ListPosition, read_cursor
from duebridge.admin.operator import DeadSettlement
from duebridge.admin.route_stats import RouteStats
from duebridge.console.forms import choice, duration_ms, text_of
from duebridge.console.previews import Preview, preview
from duebridge.console.visit import Visit
from duebridge.errors import EnvelopeError
from duebridge.ports.publisher import Reason, reason_word
from duebridge.receipt import Shown

PAGE = 50
MOST_LOOKED = 2_000  # of one page: they are read with their bodies
FIRST = 10
VERBS = ("replay", "drop")


class Group(NamedTuple):
    """Dead envelopes of one reason and one class of error."""

    reason: str
    error_class: str
    letters: int


class DeadRow(NamedTuple):
    """A dead envelope with the beginning of its body."""

    shown: Shown
    body: Preview


class DeadPage(NamedTuple):
    """What the page shows of a route; `looked` of its dead were looked at, from the cursor on."""

    stats: RouteStats
    groups: list[Group]
    rows: list[DeadRow]
    matched: int
    looked: int
    cursor: str
    now_ms: int


class Selection(NamedTuple):
    """The dead envelopes that a form means: the ids it names, or what its filter finds."""

    route: str
    ids: tuple[str, ...]
    is_all: bool
    before_ms: int


async def page(visit: Visit) -> Response:
    """Return the page: every route with its dead, or one route's dead letters."""
    route = text_of(visit.query, "route")
    if not route:
        stats = await visit.run(lambda: _stats(visit))
        return visit.page("dead_routes.html", "dead", stats=stats)
    wanted = _filter(visit.query)
    found = await visit.run(lambda: _gather(visit, visit.readable(route), wanted))
    return visit.page(
        "dead.html",
        "dead",
        found=found,
        route=route,
        reasons=[reason.word for reason in Reason],
        asked=_asked(visit.query),
        settled=_settled(visit.query),
    )


async def review(visit: Visit) -> Response:
    """Return what a replay or drop would do; it changes nothing."""
    route = visit.operable(text_of(visit.form, "route"))
    verb = choice(visit.form, "verb", VERBS)
    selection = await visit.run(lambda: _selection(visit, route))
    if not selection.ids:
        raise EnvelopeError("id: expected dead envelopes to be chosen; got none")
    return visit.page(
        "dead_review.html",
        "dead",
        route=route,
        verb=verb,
        selection=selection,
        asked=_asked(visit.form),
        first=selection.ids[:FIRST],
        most=MOST_LOOKED,
    )


async def settle(visit: Visit) -> Response:
    """Replay or drop what the dry run showed; what died since is left alone."""
    route = visit.operable(text_of(visit.form, "route"))
    verb = choice(visit.form, "verb", VERBS)
    answers = await visit.run(lambda: _settle(visit, route, verb))
    counts = Counter(answer.status for answer in answers)
    return visit.go("dead", route=route, **_asked(visit.form), **counts)


def _settle(visit: Visit, route: str, verb: str) -> list[DeadSettlement]:
    operator, selection = visit.site.operator, _selection(visit, route)
    if verb == "drop":
        return operator.drop(route, selection.ids)
    delay_ms = duration_ms(visit.form, "delay")
    spread_ms = duration_ms(visit.form, "spread")
    return operator.replay(route, selection.ids, delay_ms, spread_ms)


def _selection(visit: Visit, route: str) -> Selection:
    """Return the ids that are chosen; those of a filter died before the dry run."""
    form, operator = visit.form, visit.site.operator
    before_ms = int(text) if (text := text_of(form, "before")).isdecimal() else operator.now_ms()
    if not text_of(form, "all"):
        return Selection(route, form.ids, False, before_ms)
    wanted = _filter(form)._replace(before_ms=before_ms)
    listed = islice(list_dead(operator, route), MOST_LOOKED)
    ids = tuple(each.entry.id for each in listed if wanted.has(each.entry))
    return Selection(route, ids, True, before_ms)


def _filter(given: Mapping[str, str]) -> DeadFilter:
    reason = text_of(given, "reason")
    return DeadFilter(
        reasons=frozenset({reason_number(reason)} if reason else ()),
        error_class=text_of(given, "class"),
        error_text=text_of(given, "error"),
    )


def _asked(given: Mapping[str, str]) -> dict[str, str]:
    return {name: text_of(given, name) for name in ("reason", "class", "error")}


def _settled(query: Mapping[str, str]) -> dict[str, int]:
    """Return the counts of a settling that ended here."""
    words = ("replayed", "dropped", "in_flight", "unknown")
    return {word: int(query[word]) for word in words if query.get(word, "").isdecimal()}


def _stats(visit: Visit) -> list[RouteStats]:
    names = visit.route_names()
    return visit.site.operator.stats(names) if names else []


def _gather(visit: Visit, route: str, wanted: DeadFilter) -> DeadPage:
    operator, cursor = visit.site.operator, visit.query.get("cursor", "")
    after = read_cursor(cursor, route, "dead") if cursor else None
    groups: Counter[tuple[str, str]] = Counter()
    rows: list[DeadRow] = []
    matched = looked = 0
    end: ListPosition | None = None
    for listed in islice(list_dead(operator, route, after=after), MOST_LOOKED):
        looked += 1
        known = listed.entry.flight
        groups[(_word(known.reason), known.error_class)] += 1
        if not wanted.has(listed.entry):
            continue
        matched += 1
        if len(rows) < PAGE:
            shown = Shown.of(route, listed.entry)
            rows.append(DeadRow(shown, preview(shown.body and shown.body[:200])))
            end = listed.position
    (stats,) = operator.stats([route])
    has_more = matched > len(rows) or looked == MOST_LOOKED
    return DeadPage(
        stats,
        [Group(*key, count) for key, count in groups.most_common()],
        rows,
        matched,
        looked,
        str(end) if has_more and end else "",
        operator.now_ms(),
    )


def _word(number: int) -> str:
    return reason_word(number) if number else ""
