"""One route: how it stands and why, its settings, and what falls due on it."""

from typing import NamedTuple

from starlette.responses import Response

from duebridge.admin.histogram import due_histogram, edges
from duebridge.admin.rates import RouteRates, rates
from duebridge.admin.route_stats import RouteStats
from duebridge.config.models import Route
from duebridge.console.charts import Chart, due_chart
from duebridge.console.health import Health, health, target_health
from duebridge.console.pages.overview import HeldRow, held_rows
from duebridge.console.visit import Visit
from duebridge.durations import format_ms
from duebridge.store.workers import WorkerRecord


class Fact(NamedTuple):
    """A setting in force; of a target also how it stands."""

    name: str
    value: str
    health: Health | None = None


class RouteSheet(NamedTuple):
    """The data of the page."""

    stats: RouteStats
    health: Health
    rates: RouteRates | None
    held: list[HeldRow]
    chart: Chart
    settings: list[Fact]
    now_ms: int
    serving: int


async def page(visit: Visit) -> Response:
    """Return the page."""
    name = visit.readable(visit.query.get("route", ""))
    found = await visit.run(lambda: _gather(visit, name))
    return visit.page("route.html", "overview", found=found, route=name)


def _gather(visit: Visit, name: str) -> RouteSheet:
    operator = visit.site.operator
    (stats,), workers, now_ms = operator.stats([name]), operator.workers(), operator.now_ms(name)
    seen = rates(operator, [name])
    named = visit.site.config.routes.get(name)
    return RouteSheet(
        stats,
        health(stats, workers),
        seen[0] if seen else None,
        held_rows([stats]),
        due_chart(due_histogram(operator, [name], edges(now_ms, "hour", 30))),
        [] if named is None else [*targets_of(named, stats, workers), *settings_of(named)],
        now_ms,
        sum(name in each.routes for each in workers or []),
    )


def targets_of(route: Route, stats: RouteStats, workers: list[WorkerRecord] | None) -> list[Fact]:
    """Return the targets of a route's envelopes, and their health."""
    live = target_health(route.target, stats, workers, dead_letter=False)
    found = [Fact("target", str(route.target), live)]
    if (letters := route.dead_letter) is None:
        return [*found, Fact("dead letters to", "kept in the store")]
    dead = target_health(letters, stats, workers, dead_letter=True)
    return [*found, Fact("dead letters to", str(letters), dead)]


def settings_of(route: Route) -> list[Fact]:
    """Return a route's settings in force, in words."""
    retry = route.retry
    tries = f"{retry.max_attempts} failures; {retry.backoff} from {format_ms(retry.initial)}"
    if retry.backoff == "exponential":
        tries += f" to {format_ms(retry.max)}, jitter {retry.jitter}"
    return [
        Fact("retry", tries),
        Fact("a failing target", f"is held for {format_ms(route.on_target_error.hold)}"),
        Fact("longest delay", format_ms(route.max_delay)),
        Fact("largest body", f"{route.max_body:,} bytes"),
        Fact("lease", format_ms(route.lease)),
        Fact("remember", format_ms(route.remember) if route.remember else "no delivered id"),
        Fact("durability", str(route.durability)),
        Fact("shards", str(route.shards)),
        *([Fact("cold tier", route.cold_tier.path)] if route.cold_tier else []),
    ]
