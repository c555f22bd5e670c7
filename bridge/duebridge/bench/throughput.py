"""`bridge` and `backlog`: store to broker confirm at full speed, beside the client alone."""

from collections.abc import Iterator

from duebridge.bench.figures import BenchRow, medians, ratios
from duebridge.bench.lateness import steady_bridge
from duebridge.bench.meter import MeterReading
from duebridge.bench.stage import WARM_UP, Stage, bodies
from duebridge.bench.store_cost import fill_and_weigh

SECTION, BACKLOG = "bridge", "backlog"
ALONE, SCHEDULE, BRIDGE = "client alone", "schedule", "bridge"
RATIO, LIFE = "bridge / alone", "whole life"
FEW_PENDING = 1_000
PER_SECOND = 500


def measure_throughput(stage: Stage, count: int, rounds: int) -> Iterator[BenchRow]:
    """Yield the rows of both sides, alternating by round; then medians and ratios.

    Envelopes are scheduled before the worker starts; that is a row of its own.
    """
    rows: list[BenchRow] = []
    alone(stage, WARM_UP)
    for number in range(1, rounds + 1):
        spent = {ALONE: alone(stage, count)}
        namespace = stage.namespace()
        spent[SCHEDULE], spent[BRIDGE] = deliver(stage, namespace, count)
        stage.delete(namespace)
        of_round = [
            BenchRow(SECTION, what, reading.figures_at_speed(count), stage.broker, number)
            for what, reading in spent.items()
        ]
        yield from of_round
        rows += of_round
    yield from medians(rows)
    yield BenchRow(SECTION, RATIO, ratios(rows, BRIDGE, ALONE), stage.broker)
    yield BenchRow(SECTION, LIFE, _life(medians(rows)), stage.broker)


def measure_backlog(
    stage: Stage, count: int, pending: int, seconds: float, rounds: int
) -> Iterator[BenchRow]:
    """Yield rows beside few and beside very many pending, alternating, then their medians."""
    rows: list[BenchRow] = []
    namespaces = {FEW_PENDING: stage.namespace(), pending: stage.namespace()}
    stage.fill(namespaces[FEW_PENDING], FEW_PENDING)
    weight = fill_and_weigh(stage, namespaces[pending], pending)
    yield BenchRow(BACKLOG, "memory", weight, stage.broker)
    for number in range(1, rounds + 1):
        for many, namespace in namespaces.items():
            _, spent = deliver(stage, namespace, count)
            late = steady_bridge(stage, namespace, PER_SECOND, seconds)
            percentiles = {name: late[name] for name in ("p50_ms", "p99_ms")}
            found = spent.figures_at_speed(count) | percentiles
            rows.append(BenchRow(BACKLOG, f"{many} pending", found, stage.broker, number))
            yield rows[-1]
    yield from medians(rows)
    for namespace in namespaces.values():
        stage.delete(namespace)


def alone(stage: Stage, count: int) -> MeterReading:
    """Publish with the client alone; returns the cost."""
    contents = bodies(count)
    stage.baseline.empty()
    before = stage.meter.read()
    stage.baseline.publish_all(contents)
    return stage.meter.read().since(before)


def deliver(stage: Stage, namespace: str, count: int) -> tuple[MeterReading, MeterReading]:
    """Schedule envelopes that are due at once, then deliver them; returns both costs."""
    contents, now_ms = bodies(count), stage.now_ms(namespace)
    stage.baseline.empty()
    with stage.running(namespace) as running:
        before = stage.meter.read()
        stage.schedule(namespace, contents, [now_ms] * count)
        between = stage.meter.read()
        running.start()
        running.wait_settled(count)
        after = stage.meter.read()
    return between.since(before), after.since(between)


def _life(found: list[BenchRow]) -> dict[str, float]:
    """Return the store's cost of a message from its schedule to its ack."""
    parts = [row.figures for row in found if row.what in (SCHEDULE, BRIDGE)]
    return {name: sum(part[name] for part in parts) for name in ("store_cpu_us", "store_calls")}
