"""The sections of a benchmark, and the order in which a run measures them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeAlias

from duebridge.bench.durability import measure_durability
from duebridge.bench.figures import BenchRow, BenchSizes
from duebridge.bench.intakes import measure_intakes
from duebridge.bench.lateness import measure_lateness
from duebridge.bench.script_times import measure_scripts
from duebridge.bench.stage import BenchSetting, Stage
from duebridge.bench.store_cost import measure_idle, measure_memory
from duebridge.bench.throughput import measure_backlog, measure_throughput
from duebridge.errors import ConfigError
from duebridge.ports.discovery import broker_type, loadable_types

Section: TypeAlias = Callable[[Stage, BenchSizes], Iterator[BenchRow]]


def _lateness(stage: Stage, sizes: BenchSizes) -> Iterator[BenchRow]:
    for per_second in sizes.rates:
        yield from measure_lateness(stage, per_second, sizes.seconds, sizes.rounds)


OF_EACH_BROKER: Mapping[str, Section] = {
    "bridge": lambda stage, sizes: measure_throughput(stage, sizes.count, sizes.rounds),
    "intakes": lambda stage, sizes: measure_intakes(stage, sizes.count, sizes.rounds),
    "lateness": _lateness,
}
OF_THE_STORE: Mapping[str, Section] = {
    "memory": lambda stage, sizes: measure_memory(stage, sizes.pending),
    "backlog": lambda stage, sizes: measure_backlog(
        stage, sizes.count, sizes.backlog, sizes.seconds, sizes.rounds
    ),
    "idle": lambda stage, sizes: measure_idle(stage, sizes.seconds),
    "scripts": lambda stage, sizes: measure_scripts(stage, sizes.calls),
}
ON_ITS_OWN: Mapping[str, Callable[[BenchSizes], Iterator[BenchRow]]] = {
    "durability": lambda sizes: measure_durability(sizes.count, sizes.rounds),
}


def measure_alone(sections: Sequence[str], sizes: BenchSizes) -> Iterator[BenchRow]:
    """Yield the rows of those sections that need neither the store nor a broker."""
    for name in sections:
        if name in ON_ITS_OWN:
            yield from ON_ITS_OWN[name](sizes)


def measure(
    setting: BenchSetting, sections: Sequence[str], sizes: BenchSizes
) -> Iterator[BenchRow]:
    """Yield the rows of these sections; those of the store use the first broker.

    Raises `ConfigError` if no broker can be measured, `StoreError` and `BrokerUnavailable`.
    """
    brokers = measurable(setting)
    for number, broker in enumerate(brokers):
        with ExitStack() as stack:
            stage = Stage(setting, broker, stack)
            for name in sections:
                if name in OF_EACH_BROKER:
                    yield from OF_EACH_BROKER[name](stage, sizes)
                elif name in OF_THE_STORE and not number:
                    yield from OF_THE_STORE[name](stage, sizes)


def measurable(setting: BenchSetting) -> list[str]:
    """Return the brokers that can be measured; raises `ConfigError` if there is none."""
    brokers = setting.config.brokers
    found = [name for name, broker in brokers.items() if broker_type(broker.type).has_baseline]
    if not found:
        kinds = ", ".join(sorted({broker.type for broker in brokers.values()})) or "none"
        can = [name for name, kind in loadable_types().items() if kind.has_baseline]
        raise ConfigError(f"brokers: expected one of type {' or '.join(can)}; got {kinds}")
    return found
