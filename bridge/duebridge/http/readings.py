"""What the store says of its routes: `GET /v1/routes` and a route's stats."""

import msgspec
from starlette.responses import Response

from duebridge.admin.operator import RouteStats
from duebridge.http.operations import Call, answer


class Routes(msgspec.Struct, frozen=True):
    """The routes that a token may read, with their stats."""

    routes: list[RouteStats]


async def list_routes(call: Call) -> Response:
    """List the routes that the token may read, configured ones first."""
    names = [name for name in call.site.config.routes if call.token.covers(name)]
    operator = call.site.operator
    stats = await call.site.run(lambda: operator.stats(names) if names else [])
    return answer(Routes(stats))


async def show_stats(call: Call) -> Response:
    """Count the envelopes of a route by state."""
    operator = call.site.operator
    (stats,) = await call.site.run(lambda: operator.stats([call.route]))
    return answer(stats)
