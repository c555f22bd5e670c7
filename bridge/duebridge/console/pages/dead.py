"""Dead envelopes: why they died, and their replay or drop, which a dry run shows first."""

import re
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
from duebridge.console.seen import Seen
from duebridge.console.visit import Visit
from duebridge.errors import EnvelopeError, StoreError, listed_counts, with_done
from duebridge.ports.publisher import Reason, reason_word
from duebridge.receipt import EnvelopeDetails
from duebridge.store.wire.replies import Entry

PAGE = 50
MOST_LOOKED = 2_000  # of one page: they are read with their bodies,
MOST_BYTES = 16 * 1024 * 1024  # so many bytes of them, as they are stored
FIRST = 10
PREVIEWED = 200  # bytes of a body
VERBS = ("replay", "drop")
_COUNT = re.compile("[0-9]{1,9}")


class ReasonGroup(NamedTuple):
    """Dead envelopes of one reason and one class of error."""

    reason: str
    error_class: str
    letters: int


class DeadRow(NamedTuple):
    """A dead envelope with the beginning of its body."""

    shown: EnvelopeDetails
    body: Preview


class DeadSample(NamedTuple):
    """The dead envelopes of one bounded read; `is_cut` if there may be more behind them."""

    letters: list[ListedEnvelope]
    is_cut: bool


class DeadPage(NamedTuple):
    """The data of a route's page; `looked` dead envelopes were read, from the cursor on."""

    stats: RouteStats
    groups: list[ReasonGroup]
    rows: list[DeadRow]
    matched: int
    looked: int
    cursor: str
    now_ms: int


class Selection(NamedTuple):
    """The dead envelopes that a form means: those it names, or with `is_all` those its look finds.

    `seen` is what the form of the dry run carries of them.
    """

    ids: tuple[str, ...]
    seen: str
    is_all: bool


async def page(visit: Visit) -> Response:
    """Return the page: every route with its dead, or one route's dead envelopes."""
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
    """Preview a replay or drop; changes nothing."""
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
    """Replay or drop what the dry run showed, and nothing else."""
    route = visit.operable(text_of(visit.form, "route"))
    verb = choice(visit.form, "verb", VERBS)
    seen = Seen.read(text_of(visit.form, "seen"))
    if len(seen.marks) > MOST_LOOKED:
        raise EnvelopeError(f"seen: expected {MOST_LOOKED} at most; got {len(seen.marks)}")
    counts = await visit.run(lambda: _settle(visit, route, verb, seen))
    begin = text_of(visit.form, "cursor")
    return visit.go("dead", route=route, cursor=begin, **_asked(visit.form), **counts)


def _settle(visit: Visit, route: str, verb: str, seen: Seen) -> Counter[str]:
    operator = visit.site.operator
    delay_ms, spread_ms = duration_ms(visit.form, "delay"), duration_ms(visit.form, "spread")
    ids = [each.id for each in operator.entries(route, seen.marks) if seen.has(each)]
    counts: Counter[str] = Counter()

    def tell(answer: DeadSettlement) -> None:
        counts[answer.status] += 1

    try:
        if verb == "drop":
            operator.drop(route, ids, tell)
        else:
            operator.replay(route, ids, delay_ms, spread_ms, tell)
    except StoreError as error:
        raise with_done(error, listed_counts(counts)) from error
    counts["unknown"] += len(seen.marks) - len(ids)
    return +counts  # without zeros


def _selection(visit: Visit, route: str) -> Selection:
    is_all = bool(text_of(visit.form, "all"))
    chosen = visit.site.operator.entries(route, visit.form.ids)
    seen = Seen.of(_matching(visit, route) if is_all else chosen)
    return Selection(tuple(seen.marks), seen.field, is_all)


def _matching(visit: Visit, route: str) -> list[Entry]:
    wanted = _filter(visit.form)
    letters = _look(visit.site.operator, route, text_of(visit.form, "cursor")).letters
    return [each.entry for each in letters if wanted.has(each.entry)]


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
    return {word: int(query[word]) for word in words if _COUNT.fullmatch(query.get(word, ""))}


def _stats(visit: Visit) -> list[RouteStats]:
    names = visit.route_names()
    return visit.site.operator.stats(names) if names else []


def _look(operator: Operator, route: str, cursor: str) -> DeadSample:
    """Return the dead behind a page's cursor; a dry run of all that match looks at the same."""
    after = read_cursor(cursor, route, "dead") if cursor else None
    letters: list[ListedEnvelope] = []
    size = 0
    for listed in list_dead(operator, route, after=after, most_bytes=MOST_BYTES):
        letters.append(listed)
        size += len(listed.entry.record.blob) if listed.entry.record else 0
        if len(letters) == MOST_LOOKED or size >= MOST_BYTES:
            return DeadSample(letters, is_cut=True)
    return DeadSample(letters, is_cut=False)


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
        operator.now_ms(route),
    )


def _groups(letters: Sequence[ListedEnvelope]) -> list[ReasonGroup]:
    flights = [each.entry.flight for each in letters]
    counts = Counter((each.reason, each.error_class) for each in flights)
    return [
        ReasonGroup(reason_word(reason) if reason else "", error, count)
        for (reason, error), count in counts.most_common()
    ]


def _row(route: str, listed: ListedEnvelope) -> DeadRow:
    shown = EnvelopeDetails.of(route, listed.entry)
    return DeadRow(shown, preview(shown.body and shown.body[:PREVIEWED]))
