"""`intakes`: an intake drains its queue or topic into the store, beside a bare consumer of another.

Both are full before the clock runs, and warm: connected, in their group, with a first batch taken.
The intake runs with the interpreter's settings of `duebridge run`, the consumer with Python's.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from duebridge.bench.figures import BenchRow, medians, ratios
from duebridge.bench.meter import MeterReading
from duebridge.bench.stage import ROUTE, WARM_UP, Stage, bodies
from duebridge.errors import StoreError
from duebridge.intake.intake import IntakeLoop
from duebridge.intake.process import IntakeRunner
from duebridge.ports.baseline import BareConsumer
from duebridge.runtime import short_turns, tuned_gc

SECTION = "intakes"
BARE, INTAKE, RATIO = "bare consumer", "intake", "intake / bare"
NAME = "bench"
IDLE_TURNS = 120  # of half a second, without any message


class IntakeCost(NamedTuple):
    """The cost of taking in a number of messages."""

    messages: int
    spent: MeterReading

    def figures(self) -> dict[str, float]:
        """Return the figures a message."""
        speed = {"messages_per_s": self.messages / self.spent.seconds}
        return speed | self.spent.figures(self.messages)


def measure_intakes(stage: Stage, count: int, rounds: int) -> Iterator[BenchRow]:
    """Yield the rows of both sides, alternating by round; then medians and ratios."""
    rows: list[BenchRow] = []
    with ExitStack() as stack:
        bare, fed = (stage.open_bare_consumer(stack) for _ in range(2))
        namespace = stage.namespace()
        loop = _opened(stage, namespace, fed, stack)
        for number in range(1, rounds + 1):
            taken = {BARE: _bare(stage, bare, count), INTAKE: _intake(stage, fed, loop, count)}
            of_round = [
                BenchRow(SECTION, what, each.figures(), stage.broker, number)
                for what, each in taken.items()
            ]
            yield from of_round
            rows += of_round
    yield from medians(rows)
    yield BenchRow(SECTION, RATIO, _ratios(rows), stage.broker)


def _opened(stage: Stage, namespace: str, fed: BareConsumer, stack: ExitStack) -> IntakeLoop:
    dead_letter = {"broker": stage.broker, **stage.baseline.target}
    source = {"broker": stage.broker, **fed.source}
    intake = {"source": source, "route": ROUTE, "dead_letter": dead_letter}
    config = stage.config(namespace, intakes={NAME: intake})
    runner = IntakeRunner(config, stage.connection, [NAME])
    stack.callback(runner.drain)
    return runner.loops[0]


def _bare(stage: Stage, bare: BareConsumer, count: int) -> IntakeCost:
    bare.fill(bodies(WARM_UP + count))
    bare.take(WARM_UP)
    before = stage.meter.read()
    bare.take(count)
    return IntakeCost(count, stage.meter.read().since(before))


def _intake(stage: Stage, fed: BareConsumer, loop: IntakeLoop, count: int) -> IntakeCost:
    fed.fill(bodies(WARM_UP + count))
    warm = _take(loop, 1)  # the first batch, which is smaller than the warm-up
    before = stage.meter.read()
    with tuned_gc(), short_turns():
        taken = _take(loop, WARM_UP + count - warm)
    return IntakeCost(taken, stage.meter.read().since(before))


def _take(loop: IntakeLoop, at_least: int) -> int:
    """Have an intake settle so many, or some more; returns how many."""
    taken = idle = 0
    while taken < at_least:
        settled = loop.run_once()
        taken += settled
        idle = 0 if settled else idle + 1
        if idle > IDLE_TURNS:
            raise StoreError(f"bench: not {at_least} taken in: {loop.error or 'no more came'}")
    return taken


def _ratios(rows: list[BenchRow]) -> dict[str, float]:
    def of(what: str, name: str) -> list[float]:
        return [row.figures[name] for row in rows if row.what == what]

    speed, cpu = "messages_per_s", "worker_cpu_us"
    return {
        "throughput_ratio": ratios(of(INTAKE, speed), of(BARE, speed)),
        "cpu_ratio": ratios(of(BARE, cpu), of(INTAKE, cpu)),
    }
