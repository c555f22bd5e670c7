"""`bridge`: from store to broker confirm, as fast as it goes, beside the client alone."""

from collections.abc import Iterator

from duebridge.bench.figures import Row, medians, ratios
from duebridge.bench.meter import Reading
from duebridge.bench.stage import WARM_UP, Stage, bodies

SECTION = "bridge"
ALONE, SCHEDULE, BRIDGE = "client alone", "schedule", "bridge"
RATIO, LIFE = "bridge / alone", "whole life"


def measure_throughput(stage: Stage, count: int, rounds: int) -> Iterator[Row]:
    """Give each side's rows of each round, the two sides in turn; then medians and ratios.

    Envelopes are scheduled before the worker starts; that is a row of its own.
    """
    rows: list[Row] = []
    alone(stage, WARM_UP)
    for number in range(1, rounds + 1):
        spent = {ALONE: alone(stage, count)}
        namespace = stage.namespace()
        spent[SCHEDULE], spent[BRIDGE] = deliver(stage, namespace, count)
        stage.delete(namespace)
        of_round = [
            Row(SECTION, what, figures(reading, count), stage.broker, number)
            for what, reading in spent.items()
        ]
        yield from of_round
        rows += of_round
    yield from medians(rows)
    yield Row(SECTION, RATIO, _ratios(rows), stage.broker)
    yield Row(SECTION, LIFE, _life(medians(rows)), stage.broker)


def alone(stage: Stage, count: int) -> Reading:
    """Publish with the client alone; returns what it cost."""
    contents = bodies(count)
    stage.bare.empty()
    before = stage.meter.read()
    stage.bare.publish_all(contents)
    return stage.meter.read().since(before)


def deliver(stage: Stage, namespace: str, count: int) -> tuple[Reading, Reading]:
    """Schedule envelopes that are due at once, then deliver them; returns what each cost."""
    contents, now_ms = bodies(count), stage.now_ms(namespace)
    stage.bare.empty()
    with stage.running(namespace) as running:
        before = stage.meter.read()
        stage.schedule(namespace, contents, [now_ms] * count)
        between = stage.meter.read()
        running.start()
        running.wait_settled(count)
        after = stage.meter.read()
    return between.since(before), after.since(between)


def figures(spent: Reading, count: int) -> dict[str, float]:
    """Return a reading's figures, throughput first."""
    return {"messages_per_s": count / spent.seconds, **spent.figures(count)}


def _ratios(rows: list[Row]) -> dict[str, float]:
    def of(what: str, name: str) -> list[float]:
        return [row.figures[name] for row in rows if row.what == what]

    speed, cpu = "messages_per_s", "worker_cpu_us"
    return {
        "throughput_ratio": ratios(of(BRIDGE, speed), of(ALONE, speed)),
        "cpu_ratio": ratios(of(ALONE, cpu), of(BRIDGE, cpu)),
    }


def _life(found: list[Row]) -> dict[str, float]:
    """Return what the store does for a message from its schedule to its ack."""
    parts = [row.figures for row in found if row.what in (SCHEDULE, BRIDGE)]
    return {name: sum(part[name] for part in parts) for name in ("store_cpu_us", "store_calls")}
