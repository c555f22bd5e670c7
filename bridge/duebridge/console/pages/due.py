"""The forecast of the next hour, day or week: due envelopes, and whether they will be late."""

from typing import NamedTuple, get_args

from starlette.responses import Response

from duebridge.admin.forecast import Forecast, forecast
from duebridge.admin.held import count_serving
from duebridge.admin.histogram import Horizon
from duebridge.console.charts import Chart, forecast_chart
from duebridge.console.forms import choice
from duebridge.console.visit import Visit
from duebridge.store.workers import WorkerRecord

MOST_ROUTES = 8  # on one page
TOLD_FROM_MS = 1_000  # a shorter wait is nothing to tell


class ForecastChart(NamedTuple):
    """A route's forecast, its chart, and whether a worker serves it, as far as may be known."""

    forecast: Forecast
    chart: Chart
    is_served: bool

    @property
    def most_backlog(self) -> int:
        """The longest queue to expect."""
        return max((each.backlog or 0 for each in self.forecast.buckets), default=0)

    @property
    def grows(self) -> bool:
        """Whether more is to wait than waits now."""
        return self.most_backlog > self.forecast.overdue

    @property
    def is_late(self) -> bool:
        """Whether envelopes are to wait beyond their due instant."""
        return (self.forecast.late_ms or 0) >= TOLD_FROM_MS


async def page(visit: Visit) -> Response:
    """Return the page: of one route if it is named, else of each."""
    horizon: Horizon = choice(visit.query, "horizon", get_args(Horizon))  # type: ignore[assignment]
    wanted = visit.query.get("route", "")

    def gather() -> tuple[list[str], list[ForecastChart]]:
        names = visit.route_names()
        chosen = [visit.readable(wanted)] if wanted else names[:MOST_ROUTES]
        records = visit.site.operator.workers()
        found = [forecast(visit.site.operator, name, horizon) for name in chosen]
        return names, [_drawn(each, records) for each in found]

    names, outlooks = await visit.run(gather)
    return visit.page(
        "due.html", "due", horizon=horizon, route=wanted, names=names, outlooks=outlooks
    )


def _drawn(found: Forecast, records: list[WorkerRecord] | None) -> ForecastChart:
    is_served = records is None or count_serving(records, found.route) > 0
    return ForecastChart(found, forecast_chart(found), is_served)
