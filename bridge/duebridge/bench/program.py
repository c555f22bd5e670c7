"""Which sections there are, and in which order a run goes through them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeAlias

import msgspec

from duebridge.bench.backlog import measure_backlog
from duebridge.bench.bare import has_bare
from duebridge.bench.figures import Row
from duebridge.bench.footprint import measure_idle, measure_memory
from duebridge.bench.lateness import measure_lateness
from duebridge.bench.scripts import measure_scripts
from duebridge.bench.stage import Setting, Stage
from duebridge.bench.throughput import measure_throughput
from duebridge.errors import ConfigError


class Sizes(msgspec.Struct, frozen=True):
    """How much is measured."""

    count: int = 20_000
    rounds: int = 3
    rates: tuple[int, ...] = (500, 1000)
    seconds: float = 5.0
    pending: int = 100_000
    backlog: int = 1_000_000
    calls: int = 200


Section: TypeAlias = Callable[[Stage, Sizes], Iterator[Row]]


def _bridge(stage: Stage, sizes: Sizes) -> Iterator[Row]:
    return measure_throughput(stage, sizes.count, sizes.rounds)


def _lateness(stage: Stage, sizes: Sizes) -> Iterator[Row]:
    for per_second in sizes.rates:
        yield from measure_lateness(stage, per_second, sizes.seconds, sizes.rounds)


def _memory(stage: Stage, sizes: Sizes) -> Iterator[Row]:
    return measure_memory(stage, sizes.pending)


def _backlog(stage: Stage, sizes: Sizes) -> Iterator[Row]:
    return measure_backlog(stage, sizes.count, sizes.backlog, sizes.seconds, sizes.rounds)


def _idle(stage: Stage, sizes: Sizes) -> Iterator[Row]:
    return measure_idle(stage, sizes.seconds)


def _scripts(stage: Stage, sizes: Sizes) -> Iterator[Row]:
    return measure_scripts(stage, sizes.calls)


OF_EACH_BROKER: Mapping[str, Section] = {"bridge": _bridge, "lateness": _lateness}
OF_THE_STORE: Mapping[str, Section] = {
    "memory": _memory,
    "backlog": _backlog,
    "idle": _idle,
    "scripts": _scripts,
}
SECTIONS = (*OF_EACH_BROKER, *OF_THE_STORE)


def measure(setting: Setting, sections: Sequence[str], sizes: Sizes) -> Iterator[Row]:
    """Give the rows of every section asked for; those of the store use the first broker.

    Raises `ConfigError` where no broker can be measured, `StoreError` and `BrokerUnavailable`.
    """
    brokers = measurable(setting)
    for place, broker in enumerate(brokers):
        with ExitStack() as stack:
            stage = Stage(setting, broker, stack)
            for name in sections:
                if name in OF_EACH_BROKER:
                    yield from OF_EACH_BROKER[name](stage, sizes)
                elif not place:
                    yield from OF_THE_STORE[name](stage, sizes)


def measurable(setting: Setting) -> list[str]:
    """Return the brokers that can be measured; raises `ConfigError` where there is none."""
    brokers = setting.config.brokers
    found = [name for name, broker in brokers.items() if has_bare(broker.type)]
    if not found:
        kinds = ", ".join(sorted({broker.type for broker in brokers.values()})) or "none"
        raise ConfigError(f"brokers: expected one of type kafka or rabbitmq; got {kinds}")
    return found
