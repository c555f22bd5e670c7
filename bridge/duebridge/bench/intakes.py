"""`intakes`: an intake drains its queue or topic into the store, beside a bare consumer of another.

Both are full before the clock runs, and warm: connected, in their group, with a first batch taken.
The intake runs with the interpreter's settings of `duebridge run`, the consumer with Python's.
"""

from collections.abc import Iterator
from contextlib import ExitStack

from duebridge.bench.figures import BenchRow, medians, ratios
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
                BenchRow(SECTION, what, figures, stage.broker, number)
                for what, figures in taken.items()
            ]
            yield from of_round
            rows += of_round
    yield from medians(rows)
    yield BenchRow(SECTION, RATIO, ratios(rows, INTAKE, BARE), stage.broker)


def _opened(stage: Stage, namespace: str, fed: BareConsumer, stack: ExitStack) -> IntakeLoop:
    dead_letter = {"broker": stage.broker, **stage.baseline.target}
    source = {"broker": stage.broker, **fed.source}
    intake = {"source": source, "route": ROUTE, "dead_letter": dead_letter}
    config = stage.config(namespace, intakes={NAME: intake})
    runner = IntakeRunner(config, stage.connection, [NAME])
    stack.callback(runner.drain)
    return runner.loops[0]


def _bare(stage: Stage, bare: BareConsumer, count: int) -> dict[str, float]:
    bare.fill(bodies(WARM_UP + count))
    bare.take(WARM_UP)
    before = stage.meter.read()
    bare.take(count)
    return stage.meter.read().since(before).figures_at_speed(count)


def _intake(stage: Stage, fed: BareConsumer, loop: IntakeLoop, count: int) -> dict[str, float]:
    fed.fill(bodies(WARM_UP + count))
    warm = _take(loop, 1)  # the first batch, which is smaller than the warm-up
    before = stage.meter.read()
    with tuned_gc(), short_turns():
        taken = _take(loop, WARM_UP + count - warm)
    return stage.meter.read().since(before).figures_at_speed(taken)


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
