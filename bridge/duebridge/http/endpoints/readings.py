"""Answers `GET /v1/routes`, and a route's stats and histogram."""

import re
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duebridge.admin.histogram import DueBucket, Horizon, due_histogram, edges
from duebridge.admin.route_stats import RouteStats
from duebridge.errors import shown
from duebridge.http.operations import AuthorizedCall, answer, query_choice
from duebridge.http.problems import ProblemError
from duebridge.store.delay_store import MOST_EDGES

HORIZONS: Final[tuple[Horizon, ...]] = ("day", "hour", "week")  # the first by default
BUCKETS = 24
MOST_BUCKETS = MOST_EDGES - 1
_NUMBER = re.compile("[0-9]{1,9}")  # Python refuses to convert thousands of digits


class Routes(msgspec.Struct, frozen=True):
    """The configured routes that a token may read, with their stats."""

    routes: list[RouteStats]


async def list_routes(call: AuthorizedCall) -> Response:
    """List the configured routes that the token may read."""
    names = [name for name in call.site.config.routes if call.token.covers(name)]
    operator = call.site.operator
    stats = await call.site.run(lambda: operator.stats(names) if names else [])
    return answer(Routes(stats))


class Histogram(msgspec.Struct, frozen=True):
    """What falls due in a route from `now_ms`, the store's time, to the horizon."""

    route: str
    horizon: Horizon
    now_ms: int
    buckets: list[DueBucket]


async def show_histogram(call: AuthorizedCall) -> Response:
    """Count what falls due in the next hour, day or week."""
    horizon = query_choice(call.request, "horizon", HORIZONS)
    count, operator = _buckets(call.request), call.site.operator

    def look() -> Histogram:
        now_ms = operator.now_ms(call.route)
        found = due_histogram(operator, [call.route], edges(now_ms, horizon, count))
        return Histogram(call.route, horizon, now_ms, found)

    return answer(await call.site.run(look))


def _buckets(request: Request) -> int:
    given = request.query_params.get("buckets", str(BUCKETS))
    if not _NUMBER.fullmatch(given) or not 1 <= int(given) <= MOST_BUCKETS:
        detail = f"buckets: expected a whole number, 1 to {MOST_BUCKETS}; got {shown(given)}"
        raise ProblemError(400, "Bad request", detail)
    return int(given)


async def show_stats(call: AuthorizedCall) -> Response:
    """Count the envelopes of a route by state."""
    operator = call.site.operator
    (stats,) = await call.site.run(lambda: operator.stats([call.route]))
    return answer(stats)
