"""The overview: what waits, how fast it goes, and what keeps a route from delivering."""

from typing import NamedTuple

import msgspec
from starlette.responses import Response

from duebridge.admin.held import HeldStats, stopped_lanes
from duebridge.admin.histogram import due_histogram, edges
from duebridge.admin.listing import STATES
from duebridge.admin.operator import Operator
from duebridge.admin.rates import RouteRates, rates
from duebridge.admin.route_stats import RouteStats
from duebridge.console.charts import Chart, due_chart
from duebridge.console.health import Health, health
from duebridge.console.visit import Visit
from duebridge.store.workers import WorkerRecord


class RouteRow(NamedTuple):
    """A route's figures, and how it stands; `rates` are None where nothing is known."""

    stats: RouteStats
    health: Health
    rates: RouteRates | None


class BrokerRow(NamedTuple):
    """A broker as the workers see it; `error` is the latest of those who do not reach it."""

    name: str
    type: str
    up: int
    down: int
    window: int
    outstanding: int
    error: str

    @property
    def tone(self) -> str:
        """Its colour."""
        return "bad" if self.down else "ok" if self.up else ""


class HeldRow(NamedTuple):
    """A held target, once, with the routes that wait for it."""

    held: HeldStats
    routes: list[str]


class Overview(NamedTuple):
    """The data of the page."""

    now_ms: int
    routes: list[RouteRow]
    brokers: list[BrokerRow]
    held: list[HeldRow]
    workers: list[WorkerRecord] | None
    chart: Chart

    @property
    def totals(self) -> dict[str, int]:
        """The count of each state over all routes."""
        return {name: sum(getattr(row.stats, name) for row in self.routes) for name in STATES}

    @property
    def oldest_due_age_ms(self) -> int:
        """The time since the oldest undelivered envelope became due."""
        return max((row.stats.oldest_due_age_ms for row in self.routes), default=0)

    @property
    def accepted_per_s(self) -> float:
        """Accepted envelopes a second, over all routes."""
        return sum(row.rates.accepted_per_s for row in self.routes if row.rates)

    @property
    def delivered_per_s(self) -> float:
        """Delivered envelopes a second, over all routes."""
        return sum(row.rates.delivered_per_s for row in self.routes if row.rates)


async def page(visit: Visit) -> Response:
    """Return the page."""
    return visit.page("overview.html", "overview", found=await visit.run(lambda: _gather(visit)))


def _gather(visit: Visit) -> Overview:
    operator = visit.site.operator
    names = visit.route_names()
    workers = operator.workers()
    stats = operator.stats(names) if names else []
    by_route = {each.route: each for each in rates(operator, names)} if names else {}
    rows = [RouteRow(each, health(each, workers), by_route.get(each.route)) for each in stats]
    now_ms = operator.now_ms(*names)
    return Overview(
        now_ms,
        rows,
        broker_rows(visit, workers or []),
        held_rows(stats),
        workers,
        _chart(operator, names, now_ms),
    )


def _chart(operator: Operator, names: list[str], now_ms: int) -> Chart:
    return due_chart(due_histogram(operator, names, edges(now_ms, "hour", 30)) if names else [])


def held_rows(stats: list[RouteStats]) -> list[HeldRow]:
    """Return each held target once, longest first."""
    found: dict[tuple[str, bool], list[tuple[str, HeldStats]]] = {}
    for each in stats:
        for held in each.held:
            found.setdefault((held.target, held.dead_letter), []).append((each.route, held))
    return sorted(map(_held_row, found.values()), key=lambda row: row.held.since_ms)


def _held_row(by_route: list[tuple[str, HeldStats]]) -> HeldRow:
    waiting = sum(held.waiting for _, held in by_route)
    held = msgspec.structs.replace(by_route[0][1], waiting=waiting)
    return HeldRow(held, [route for route, _ in by_route])


def broker_rows(visit: Visit, workers: list[WorkerRecord]) -> list[BrokerRow]:
    """Return the brokers of the configuration, and those that only workers name."""
    stopped = {each.broker: each.error for each in stopped_lanes(workers)}
    lanes = [lane for record in workers for lane in record.lanes]
    brokers = visit.site.config.brokers
    names = dict.fromkeys([*brokers, *(lane.broker for lane in lanes)])
    return [
        BrokerRow(
            name,
            brokers[name].type if name in brokers else "",
            sum(lane.is_open for lane in lanes if lane.broker == name),
            sum(not lane.is_open for lane in lanes if lane.broker == name),
            sum(lane.window for lane in lanes if lane.broker == name),
            sum(lane.outstanding for lane in lanes if lane.broker == name),
            stopped.get(name, "")
            or next((lane.error for lane in lanes if lane.broker == name and lane.error), ""),
        )
        for name in names
    ]
