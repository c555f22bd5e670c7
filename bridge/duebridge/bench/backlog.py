"""`backlog`: throughput and lateness beside few pending and beside very many."""

from collections.abc import Iterator

from duebridge.bench.figures import Row, medians
from duebridge.bench.footprint import fill_and_weigh
from duebridge.bench.lateness import steady_bridge
from duebridge.bench.stage import Stage
from duebridge.bench.throughput import deliver, figures

SECTION = "backlog"
FEW = 1_000
PER_SECOND = 500


def measure_backlog(
    stage: Stage, count: int, pending: int, seconds: float, rounds: int
) -> Iterator[Row]:
    """Give rows with few and with very many pending, in turn, then their medians."""
    rows: list[Row] = []
    namespaces = {FEW: stage.namespace(), pending: stage.namespace()}
    stage.fill(namespaces[FEW], FEW)
    weight = fill_and_weigh(stage, namespaces[pending], pending)
    yield Row(SECTION, "memory", weight, stage.broker)
    for number in range(1, rounds + 1):
        for many, namespace in namespaces.items():
            _, spent = deliver(stage, namespace, count)
            late = steady_bridge(stage, namespace, PER_SECOND, seconds)
            found = figures(spent, count) | {name: late[name] for name in ("p50_ms", "p99_ms")}
            rows.append(Row(SECTION, f"{many} pending", found, stage.broker, number))
            yield rows[-1]
    yield from medians(rows)
    for namespace in namespaces.values():
        stage.delete(namespace)
