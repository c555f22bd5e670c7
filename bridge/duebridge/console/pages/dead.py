"""Dead letters: why they died, and their replay or drop, which a dry run shows first."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from starlette.responses import Response

from duebridge.admin.dead import DeadFilter, list_dead, reason_number
from duebridge.admin.listing import ListedEnvelope, read_cursor
from duebridge.admin.operator import DeadSettlement, Operator
from duebridge.admin.route_stats import RouteStats
from duebridge.console.forms import choice, duration_ms, text_of
from duebridge.console.previews import Preview, preview
from duebridge.console.visit import Visit
from duebridge.errors import EnvelopeError
from duebridge.ports.publisher import Reason, reason_word
from duebridge.receipt import Shown

PAGE = 50
MOST_LOOKED = 2_000  # of one page: they are read with their bodies,
MOST_BYTES = 16 * 1024 * 1024  # so many bytes of them, as they are stored
FIRST = 10
PREVIEWED = 200  # bytes of a body
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


class Look(NamedTuple):
    """The dead that one look takes in; `is_cut` if there may be more behind them."""

    letters: list[ListedEnvelope]
    is_cut: bool


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
    """The dead envelopes that a form means: the ids it names, or what its page's look finds."""

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
        begin=text_of(visit.query, "cursor"),
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
        begin=text_of(visit.form, "cursor"),
        first=selection.ids[:FIRST],
        most=MOST_LOOKED,
    )


async def settle(visit: Visit) -> Response:
    """Replay or drop what the dry run showed; what died since is left alone."""
    route = visit.operable(text_of(visit.form, "route"))
    verb = choice(visit.form, "verb", VERBS)
    answers = await visit.run(lambda: _settle(visit, route, verb))
    counts = Counter(answer.status for answer in answers)
    begin = text_of(visit.form, "cursor")
    return visit.go("dead", route=route, cursor=begin, **_asked(visit.form), **counts)


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
    letters = _look(operator, route, text_of(form, "cursor")).letters
    ids = tuple(each.entry.id for each in letters if wanted.has(each.entry))
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


def _look(operator: Operator, route: str, cursor: str) -> Look:
    """Return the dead behind a page's cursor; its replay and drop look at the same ones."""
    after = read_cursor(cursor, route, "dead") if cursor else None
    letters: list[ListedEnvelope] = []
    size = 0
    for listed in list_dead(operator, route, after=after):
        letters.append(listed)
        size += len(listed.entry.record.blob) if listed.entry.record else 0
        if len(letters) == MOST_LOOKED or size >= MOST_BYTES:
            return Look(letters, True)
    return Look(letters, False)


def _gather(visit: Visit, route: str, wanted: DeadFilter) -> DeadPage:
    operator = visit.site.operator
    letters, is_cut = _look(operator, route, text_of(visit.query, "cursor"))
    matching = [each for each in letters if wanted.has(each.entry)]
    end = matching[PAGE - 1] if len(matching) > PAGE else letters[-1] if is_cut else None
    (stats,) = operator.stats([route])
    return DeadPage(
        stats,
        _groups(letters),
        [_row(route, each) for each in matching[:PAGE]],
        len(matching),
        len(letters),
        "" if end is None else str(end.position),
        operator.now_ms(),
    )


def _groups(letters: Sequence[ListedEnvelope]) -> list[Group]:
    flights = [each.entry.flight for each in letters]
    counts = Counter((each.reason, each.error_class) for each in flights)
    return [
        Group(reason_word(reason) if reason else "", error, count)
        for (reason, error), count in counts.most_common()
    ]


def _row(route: str, listed: ListedEnvelope) -> DeadRow:
    shown = Shown.of(route, listed.entry)
    return DeadRow(shown, preview(shown.body and shown.body[:PREVIEWED]))
