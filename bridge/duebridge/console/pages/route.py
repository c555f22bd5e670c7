"""One route: how it stands and why, its settings, and what falls due on it."""

from typing import NamedTuple

from starlette.responses import Response

from duebridge.admin.histogram import due_histogram, edges
from duebridge.admin.rates import RouteRates, rates
from duebridge.admin.route_stats import RouteStats
from duebridge.config.models import Route
from duebridge.console.charts import Chart, due_chart
from duebridge.console.health import Health, health
from duebridge.console.pages.overview import HeldRow, held_rows
from duebridge.console.visit import Visit
from duebridge.durations import format_ms


class RouteSight(NamedTuple):
    """Everything that the page shows."""

    stats: RouteStats
    health: Health
    rates: RouteRates | None
    held: list[HeldRow]
    chart: Chart
    settings: list[tuple[str, str]]
    now_ms: int
    serving: int


async def page(visit: Visit) -> Response:
    """Return the page."""
    name = visit.readable(visit.query.get("route", ""))
    found = await visit.run(lambda: _gather(visit, name))
    return visit.page("route.html", "overview", found=found, route=name)


def _gather(visit: Visit, name: str) -> RouteSight:
    operator = visit.site.operator
    (stats,), workers, now_ms = operator.stats([name]), operator.workers(), operator.now_ms()
    seen = rates(operator, [name])
    named = visit.site.config.routes.get(name)
    return RouteSight(
        stats,
        health(stats, workers),
        seen[0] if seen else None,
        held_rows([stats]),
        due_chart(due_histogram(operator, [name], edges(now_ms, "hour", 30))),
        [] if named is None else settings_of(named),
        now_ms,
        sum(name in each.routes for each in workers or []),
    )


def settings_of(route: Route) -> list[tuple[str, str]]:
    """Return a route's settings in force, in words."""
    retry = route.retry
    tries = f"{retry.max_attempts} failures; {retry.backoff} from {format_ms(retry.initial)}"
    if retry.backoff == "exponential":
        tries += f" to {format_ms(retry.max)}, jitter {retry.jitter}"
    return [
        ("target", str(route.target)),
        ("dead letters to", str(route.dead_letter) if route.dead_letter else "kept in the store"),
        ("retry", tries),
        ("a failing target", f"is held for {format_ms(route.on_target_error.hold)}"),
        ("longest delay", format_ms(route.max_delay)),
        ("largest body", f"{route.max_body:,} bytes"),
        ("lease", format_ms(route.lease)),
        ("remember", format_ms(route.remember) if route.remember else "no delivered id"),
        ("durability", str(route.durability)),
        ("shards", str(route.shards)),
        *([("cold tier", route.cold_tier.path)] if route.cold_tier else []),
    ]
