"""The intakes of a process: opens their sources, runs a thread each, and drains them."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import structlog

from duebridge.config.broker_access import live_settings, open_publisher, source_plan, using
from duebridge.config.models import Config
from duebridge.envelope import Target
from duebridge.errors import ConfigError
from duebridge.intake.intake import IntakeLoop
from duebridge.intake.intake_store import REPEAT_FOR_S, IntakeStore
from duebridge.intake.letters import LetterBox
from duebridge.intake.positions import WantedPositions
from duebridge.ports.publisher import Publisher
from duebridge.ports.source import Source, SourcePlan
from duebridge.runtime import join_all
from duebridge.store.positions import StorePositions
from duebridge.store.registry import Registry
from duebridge.store.server.connection import REPEAT_FOR_S as STORE_FOR_S
from duebridge.store.server.connection import Connection
from duebridge.store.server.fitness import check_fitness
from duebridge.store.workers import IntakeRecord
from duebridge.telemetry import metrics
from duebridge.telemetry.tracing import Tracing
from duebridge.worker.reload import (
    Changes,
    SwapRefused,
    changes_between,
    check_new_needs,
    fixed_at_start,
    other_shards,
)

CLOSE_WITHIN_S = 2.0
DRAIN_SHARE = 4  # of the time to drain: a store that is away must leave the lanes theirs

log = structlog.get_logger()


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

        Raises `ConfigError`, and `StoreUnfit` or `StoreUnavailable` where the store is no place for
        what any route is promised: lanes check it only for routes that they deliver.
        """
        check_fitness(connection, config.store.allow_unfit, STORE_FOR_S, config.needs)
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
        self._closing = threading.Thread(target=self._clients.close, name="closing", daemon=True)

    def _open(self, name: str, stack: ExitStack) -> IntakeLoop:
        config = self._config
        plan = source_plan(config, name)
        target = _dead_letter(config, name)
        publisher = self._publisher(target.broker, stack)
        stored = StorePositions(self._connection, config.store.namespace, name, REPEAT_FOR_S)
        positions = WantedPositions(stored)
        source = self._open_source(plan, positions)
        stack.callback(source.close)
        store = IntakeStore(name, config, self._connection, self._tracing)
        letters = LetterBox(publisher, target)
        return IntakeLoop(name, config, source, store, letters, positions)

    def _publisher(self, broker: str, stack: ExitStack) -> Publisher:
        if broker not in self._publishers:
            publisher = self._publishers[broker] = open_publisher(self._config, broker)
            stack.callback(publisher.close)
        return self._publishers[broker]

    def _open_source(self, plan: SourcePlan, positions: WantedPositions) -> Source:
        with using(self._config, plan.broker) as kind:
            return kind.open_source(live_settings(self._config, plan.broker), plan, positions)

    def start(self) -> None:
        """Start taking messages in."""
        for loop in self.loops:
            metrics.begin_intake(loop.name, loop.known_lag, loop.is_up, loop.waiting_s)
        for thread in self._threads:
            thread.start()
        if self.loops:
            log.info("intakes_started", intakes=[loop.name for loop in self.loops])

    @property
    def is_alive(self) -> bool:
        """Whether every loop still runs, as it must until the drain."""
        return all(thread.is_alive() for thread in self._threads)

    @property
    def config(self) -> Config:
        """The configuration in effect."""
        return self._config

    def prepare(self, config: Config) -> None:
        """Open the publishers that `follow` will need, so that nothing there fails.

        `config` has the brokers and intakes of the start. Raises `ConfigError`.
        """
        for loop in self.loops:
            self._publisher(_dead_letter(config, loop.name).broker, self._clients)

    def follow(self, config: Config) -> None:
        """Take over the routes of a configuration that was prepared.

        Refused messages go to its dead-letter targets at once, those of a batch in hand too: the
        former target may be what holds the batch.
        """
        self._config = config
        for loop in self.loops:
            target = _dead_letter(config, loop.name)
            loop.letters.use(self._publisher(target.broker, self._clients), target)
            loop.swap(config)

    def swap(self, config: Config) -> Changes:
        """Apply the routes of another configuration, all or none, in a process without lanes.

        Raises `SwapRefused` and `StoreError`.
        """
        if reasons := fixed_at_start(self._config, config, config.brokers):
            raise SwapRefused(reasons)
        check_new_needs(self._connection, self._config, config)
        registered = Registry(self._connection, config.store.namespace).shards()
        if reasons := other_shards(config, registered):
            raise SwapRefused(reasons, may_pass=True)
        self.prepare(config)
        changes = changes_between(self._config, config)
        self.follow(config)
        return changes

    def records(self) -> list[IntakeRecord]:
        """Return the present state of each intake."""
        return [loop.record() for loop in self.loops]

    def idle_s(self) -> dict[str, float]:
        """Return the seconds since each loop made a step, by the intake's name."""
        return {loop.name: loop.idle_s() for loop in self.loops}

    def drain(self) -> bool:
        """Take nothing more in, settle the batches in hand, and close the sources.

        What cannot be settled within a share of `worker.drain` stays the broker's. False: a loop or
        the close of a client still hangs. Once all loops are over there are none: the process goes
        on as one without intakes.
        """
        began = time.monotonic()
        within_s = self._config.worker.drain / 1000 / DRAIN_SHARE
        self._stop.set()
        join_all(self._started(), began + within_s)
        for loop in self.loops:
            loop.give_up()
        join_all(self._started(), began + within_s + CLOSE_WITHIN_S)
        if self._closing.ident is None:
            self._closing.start()
        self._closing.join(CLOSE_WITHIN_S)
        if self.loops:
            log.info("intakes_drained", took_s=round(time.monotonic() - began, 3))
        if not any(each.is_alive() for each in self._threads):
            self.loops, self._threads = [], []
        return not (self.loops or self._closing.is_alive())

    def _started(self) -> Iterator[threading.Thread]:
        return (thread for thread in self._threads if thread.ident is not None)


def _dead_letter(config: Config, name: str) -> Target:
    target = source_plan(config, name).dead_letter
    if target is None:
        raise ConfigError(f"intakes.{name}.dead_letter: missing key")
    return target
