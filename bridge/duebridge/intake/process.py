"""The intakes of a process: opens their sources, runs a thread each, and drains them."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import structlog

from duebridge.config.intakes import Intake
from duebridge.config.live import LiveSettings
from duebridge.config.load import resolved_broker
from duebridge.config.models import Config
from duebridge.envelope import Target
from duebridge.errors import ConfigError
from duebridge.intake.intake import IntakeLoop
from duebridge.intake.letters import LetterBox
from duebridge.intake.positions import WantedPositions
from duebridge.intake.storing import REPEAT_FOR_S, Storeroom
from duebridge.ports.discovery import broker_type, naming
from duebridge.ports.publisher import Publisher
from duebridge.ports.settings import did_you_mean
from duebridge.ports.source import Source, SourcePlan
from duebridge.store.positions import StorePositions
from duebridge.store.server.connection import Connection
from duebridge.telemetry import metrics
from duebridge.telemetry.tracing import Tracing
from duebridge.worker.publishers import open_publisher

CLOSE_WITHIN_S = 5.0
FROZEN_AFTER_S = 12.0  # beside a publish deadline, which a dead letter may wait for

log = structlog.get_logger()


def dead_letter_of(config: Config, name: str) -> Target:
    """Return where an intake's refused messages go; the configuration has one."""
    intake = config.intakes[name]
    found = intake.dead_letter or config.routes[intake.route].dead_letter
    if found is None:
        raise ConfigError(f"intakes.{name}.dead_letter: missing key")
    return found


def plan_of(config: Config, name: str) -> SourcePlan:
    """Return what an intake asks of its source."""
    intake = config.intakes[name]
    return SourcePlan(
        intake=name,
        broker=intake.source.broker,
        source=intake.source.model_dump(exclude={"broker"}),
        declare=None if intake.declare is None else intake.declare.model_dump(),
        dead_letter=dead_letter_of(config, name),
    )


def find_intake(config: Config, name: str) -> Intake:
    """Return an intake of the configuration; raises `ConfigError`, which names the known ones."""
    if name in config.intakes:
        return config.intakes[name]
    known = ", ".join(sorted(config.intakes)) or "none"
    close = did_you_mean(name, config.intakes)
    raise ConfigError(f"intake: expected one of the configuration ({known}); got {name!r}{close}")


def broker_settings(config: Config, broker: str) -> LiveSettings:
    """Return the settings of a broker as its type reads them."""
    return LiveSettings(partial(resolved_broker, config, broker))


class IntakeRunner:
    """The intakes of a process, from `start` until `drain`."""

    def __init__(
        self,
        config: Config,
        connection: Connection,
        names: Sequence[str],
        *,
        tracing: Tracing | None = None,
    ) -> None:
        """Open the sources and the publishers of dead letters, which connect on first use.

        Raises `ConfigError`.
        """
        self._config = config
        self._connection = connection
        self._tracing = tracing
        self._publishers: dict[str, Publisher] = {}
        with ExitStack() as stack:
            self.loops = [self._open(name, stack) for name in names]
            self._clients = stack.pop_all()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=loop.run, args=(self._stop,), name=f"intake-{loop.name}", daemon=True
            )
            for loop in self.loops
        ]

    def _open(self, name: str, stack: ExitStack) -> IntakeLoop:
        config, intake = self._config, self._config.intakes[name]
        target = dead_letter_of(config, name)
        if target.broker not in self._publishers:
            publisher = self._publishers[target.broker] = open_publisher(config, target.broker)
            stack.callback(publisher.close)
        kept = StorePositions(self._connection, config.store.namespace, name, REPEAT_FOR_S)
        positions = WantedPositions(kept)
        source = self._open_source(name, positions)
        stack.callback(source.close)
        storeroom = Storeroom(
            name,
            config,
            self._connection,
            is_replacing=intake.on_conflict == "replace",
            tracing=self._tracing,
        )
        letters = LetterBox(self._publishers[target.broker], target)
        return IntakeLoop(name, config, source, storeroom, letters, positions)

    def _open_source(self, name: str, positions: WantedPositions) -> Source:
        config, plan = self._config, plan_of(self._config, name)
        kind = config.brokers[plan.broker].type
        with naming(plan.broker, kind):
            return broker_type(kind).open_source(
                broker_settings(config, plan.broker), plan, positions
            )

    def start(self) -> None:
        """Start taking messages in."""
        for loop in self.loops:
            metrics.begin_intake(loop.name, loop.source.lag, partial(_is_up, loop), loop.waiting_s)
        for thread in self._threads:
            thread.start()
        log.info("intakes_started", intakes=[loop.name for loop in self.loops])

    @property
    def is_alive(self) -> bool:
        """Whether every loop still runs, as it must until the drain."""
        return all(thread.is_alive() for thread in self._threads)

    def swap(self, config: Config) -> None:
        """Take over the routes of another configuration, whose intakes are the same."""
        for loop in self.loops:
            loop.swap(config)

    def liveness_faults(self) -> list[str]:
        """Return a fault for each loop that stands still."""
        most_s = FROZEN_AFTER_S + self._config.worker.publish_deadline / 1000
        frozen = (loop for loop in self.loops if loop.idle_s() > most_s)
        return [f"intake {loop.name}: its loop stands still" for loop in frozen]

    def readiness_faults(self) -> list[str]:
        """Return the intakes whose source has not answered, or does not now."""
        return [f"intake {loop.name}: {loop.error}" for loop in self.loops if loop.error]

    def drain(self, within_s: float) -> bool:
        """Take nothing more in, settle the batches in hand, and close the sources.

        What cannot be settled `within_s` stays the broker's. False: something still hangs.
        """
        began = time.monotonic()
        self._stop.set()
        _join(self._started(), began + within_s)
        for loop in self.loops:
            loop.give_up()
        _join(self._started(), began + within_s + CLOSE_WITHIN_S / 2)
        closing = threading.Thread(target=self._clients.close, name="closing", daemon=True)
        closing.start()
        closing.join(CLOSE_WITHIN_S)
        log.info("intakes_drained", took_s=round(time.monotonic() - began, 3))
        return not (closing.is_alive() or any(each.is_alive() for each in self._threads))

    def _started(self) -> Iterator[threading.Thread]:
        return (thread for thread in self._threads if thread.ident is not None)


def _is_up(loop: IntakeLoop) -> bool:
    return not loop.error


def _join(threads: Iterator[threading.Thread], until: float) -> None:
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
