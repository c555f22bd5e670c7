"""Draw the dashboard from a running Prometheus: `python -m deploy.dashboard.render URL OUT.html`.

It asks the dashboard's own queries. For where there is no Grafana; `deploy.dashboard.picture` makes
the picture in docs/ with it.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.dashboard import draw
from deploy.dashboard.panels import RATE_INTERVAL, Panel, panels
from deploy.dashboard.server import Prometheus

STEPS = 240


def render(source: Prometheus, start: float, end: float, rate_interval: str = RATE_INTERVAL) -> str:
    """Return the page of this time; raises `PrometheusError` where a query is refused."""
    minutes = round((end - start) / 60)
    title = f"duebridge <small>· {minutes} minutes, times since their beginning</small>"
    return draw.page(title, (_drawn(source, each, start, end) for each in panels(rate_interval)))


def _drawn(source: Prometheus, panel: Panel, start: float, end: float) -> str:
    if panel.kind == "row":
        return draw.row(panel)
    if panel.kind == "stat":
        found = source.instant(panel.targets[0].query, end)
        return draw.stat(panel, float(found[0]["value"][1]) if found else None)
    return draw.lines(panel, list(_lines(source, panel, start, end)), start, end)


def _lines(source: Prometheus, panel: Panel, start: float, end: float) -> Iterator[draw.Line]:
    for target in panel.targets:
        for each in source.over(target.query, start, end, (end - start) / STEPS):
            name = draw.legend(target.legend, each["metric"])
            points = [(at, float(value)) for at, value in each["values"] if value != "NaN"]
            if points:
                yield draw.Line(name, points, *draw.unit_of(panel, name))


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m deploy.dashboard.render", description=__doc__)
    parser.add_argument("url", help="such as http://localhost:9090")
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate-interval", default=RATE_INTERVAL, help="Grafana's, such as 1m")
    given = parser.parse_args(words)
    now = time.time()
    given.out.write_text(
        render(Prometheus(given.url), now - given.minutes * 60, now, given.rate_interval)
    )


if __name__ == "__main__":
    main()
