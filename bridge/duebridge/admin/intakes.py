"""Lists intakes for operators: sources, lag and declarations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from duebridge.admin.operator import Operator
from duebridge.config.broker_access import live_settings, source_plan, using
from duebridge.config.models import Config
from duebridge.envelope import Target
from duebridge.errors import ConfigError, unknown_name
from duebridge.ports.broker import BrokerType
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import SourcePlan
from duebridge.store.server.connection import Connection
from duebridge.store.workers import WorkerRecord


class IntakeState(msgspec.Struct, frozen=True):
    """An intake of the configuration, as one process runs it; `process` is empty for none.

    `lag` counts what waits at the broker for this process, None if that is not known.
    """

    intake: str
    broker: str
    source: Mapping[str, Any]
    route: str
    to: str
    dead_letter: Target | None
    process: str = ""
    lag: int | None = None
    error: str = ""


def intake_states(config: Config, connection: Connection) -> list[IntakeState]:
    """Return the intakes, each with every process that runs it. Raises `StoreError`."""
    records = Operator(config, connection).workers() or []
    return [state for name in config.intakes for state in _states(config, name, records)]


def _states(config: Config, name: str, records: Sequence[WorkerRecord]) -> list[IntakeState]:
    plan, intake = source_plan(config, name), config.intakes[name]
    given = {key: value for key, value in plan.source.items() if value is not None}
    state = IntakeState(name, plan.broker, given, intake.route, intake.to, plan.dead_letter)
    return list(_running(state, records)) or [state]


def _running(state: IntakeState, records: Sequence[WorkerRecord]) -> Iterator[IntakeState]:
    for record in records:
        for each in record.intakes:
            if each.name == state.intake:
                process = f"{record.host}, pid {record.pid}"
                yield msgspec.structs.replace(
                    state, process=process, lag=each.lag, error=each.error
                )


def declare_intake(config: Config, name: str) -> list[str]:
    """Declare what an intake needs at its broker; return a line for each thing.

    Raises `ConfigError` and `BrokerUnavailable`.
    """
    find_intake(config, name)
    plan = source_plan(config, name)
    with using(config, plan.broker) as kind:
        if kind.declaration is not None:
            return _declared(kind, config, plan)
    named = config.brokers[plan.broker].type
    raise ConfigError(f"intake {name}: brokers of type {named} declare nothing; make the topic")


def _declared(kind: BrokerType, config: Config, plan: SourcePlan) -> list[str]:
    try:
        return kind.declare_source(live_settings(config, plan.broker), plan)
    except BrokerUnavailable as error:
        raise BrokerUnavailable(f"brokers.{plan.broker}: {error}") from error


def find_intake(config: Config, name: str) -> str:
    """Return the name if there is an intake of it; raises `ConfigError`, which names the known."""
    if name in config.intakes:
        return name
    fault = unknown_name("one of the configuration", name, config.intakes)
    raise ConfigError(f"intake: {fault}")
