"""The process of `duebridge run`: opens its parts, runs them until a signal, then drains them."""

import os
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from duebridge.admin.checks.drain_check import DrainCheck
from duebridge.cli.exits import DONE, NO, finish
from duebridge.cli.session import opened_store
from duebridge.cli.signals import Signals
from duebridge.config.broker_access import open_publishers
from duebridge.config.models import Config
from duebridge.errors import BridgeError, ConfigError
from duebridge.intake.process import IntakeRunner
from duebridge.runtime import short_turns, tuned_gc
from duebridge.store.server.connection import REPEAT_FOR_S, Connection
from duebridge.store.workers import Workers
from duebridge.telemetry.metrics import observe_store_call
from duebridge.telemetry.tracing import traced_process
from duebridge.worker.process import Runner
from duebridge.worker.reload import CONFIG_EVERY_S, Changes, Reload
from duebridge.worker.reporting.gauges import register
from duebridge.worker.reporting.missing import MissingRoutes
from duebridge.worker.reporting.probes import HealthServer
from duebridge.worker.reporting.status import StatusWriter
from duebridge.worker.reporting.store_monitor import StoreMonitor

log = structlog.get_logger()


class ProcessOptions(NamedTuple):
    """How a process runs the configuration that was in the file `path` as `text`.

    `is_alone`: its intakes run without lanes, so that nothing is delivered.
    """

    path: Path
    text: str
    intakes: list[str]
    health_port: int | None
    is_alone: bool
    until_empty: bool


class ProcessParts(NamedTuple):
    """What a process runs until its end."""

    runner: Runner
    intakes: IntakeRunner
    reload: Reload
    status: StatusWriter
    drain_check: DrainCheck


def run_process(config: Config, options: ProcessOptions, signals: Signals) -> None:
    """Run intakes and lanes until a signal, or until the store is empty if that is asked for."""
    with ExitStack() as stack:
        parts = open_parts(config, options, stack)
        run_parts(parts, signals, until_empty=options.until_empty)
    if options.until_empty:
        finish(is_yes=parts.drain_check.is_empty)


def open_parts(config: Config, options: ProcessOptions, stack: ExitStack) -> ProcessParts:
    """Open store, brokers, intakes and probes; the stack closes what `run_parts` does not."""
    stack.enter_context(tuned_gc())
    if options.intakes:
        stack.enter_context(short_turns())
    for_lanes = without_routes(config) if options.is_alone else config
    publishers = open_publishers(for_lanes, stack)
    connection = stack.enter_context(opened_store(config, REPEAT_FOR_S))
    connection.actor = ""  # what a worker does is nobody's command
    connection.observe = observe_store_call
    port, tracing = options.health_port, stack.enter_context(traced_process())
    exports = port is not None
    runner = Runner(for_lanes, connection, publishers, exports_gauges=exports, tracing=tracing)
    intakes = IntakeRunner(config, connection, options.intakes, tracing=tracing)
    if port is not None:
        serve_health(runner, intakes, connection, port, stack)
    swap = intakes.swap if options.is_alone else partial(swap_both, runner, intakes)
    workers = Workers(connection, config.store.namespace)
    return ProcessParts(
        runner,
        intakes,
        Reload(options.path, options.text, swap),
        StatusWriter(runner.worker, workers, intakes=intakes.records),
        DrainCheck(connection),
    )


def run_parts(parts: ProcessParts, signals: Signals, *, until_empty: bool) -> None:
    """Run until a signal, or with `until_empty` until nothing is left to deliver; then drain.

    Raises `BridgeError` if a loop ends before.
    """
    signals.begin()
    parts.status.start()
    try:
        parts.runner.start()
        parts.intakes.start()
        while not signals.wait(CONFIG_EVERY_S):
            parts.reload.run_once(is_asked=signals.take_reload())
            if not (parts.runner.is_alive and parts.intakes.is_alive):
                raise BridgeError("a loop of this process has ended; see the log")
            if until_empty and is_drained(parts):
                break
    finally:
        began = signals.stopped_at or time.monotonic()
        are_intakes_over = parts.intakes.drain()
        parts.status.close()  # as late as this: until then the process listens and claims
        if not all((are_intakes_over, parts.runner.drain(began))):
            is_yes = parts.drain_check.is_empty or not until_empty
            end_at_once(sys.exc_info()[1], DONE if is_yes else NO)


def is_drained(parts: ProcessParts) -> bool:
    """Return whether nothing is left to deliver; the intakes end before that is certain.

    What they took in since the store was seen empty is delivered first. Raises `BridgeError` if one
    does not end.
    """
    is_complete = partial(parts.drain_check.is_complete, parts.runner.config)
    if not is_complete():
        return False
    if not parts.intakes.loops:
        return True
    parts.intakes.drain()
    if parts.intakes.loops:  # a client that only closes slowly takes nothing more in
        raise BridgeError("an intake of this process does not end; see the log")
    return is_complete()


def swap_both(runner: Runner, intakes: IntakeRunner, config: Config) -> Changes:
    """Apply the routes of another configuration to lanes and intakes, or to none if it raises."""
    changes = runner.swap(config, intakes.prepare)
    intakes.follow(config)
    return changes


def without_routes(config: Config) -> Config:
    """Return the configuration of lanes that deliver nothing."""
    return config.model_copy(update={"routes": {}})


def end_at_once(error: BaseException | None, code: int) -> None:
    """End the process without waiting for a client library that hangs; with 1 for an error."""
    if error is not None:
        print(f"duebridge: {error}", file=sys.stderr)  # noqa: T201 - the command's last word
    sys.stderr.flush()
    os._exit(code if error is None else 1)


def serve_health(
    runner: Runner, intakes: IntakeRunner, connection: Connection, port: int, stack: ExitStack
) -> None:
    """Serve probes until the stack unwinds; raises `ConfigError` if the port is taken."""
    store = runner.config.store
    absent = runner.absent if runner.config.routes else dict[str, int]
    monitor = StoreMonitor(connection, absent, store.allow_unfit, lambda: intakes.config.needs)
    register(runner.views, runner.lanes.values(), monitor)
    missing = MissingRoutes(absent, lambda: runner.config, lambda: monitor.snapshot)
    try:
        server = HealthServer(
            runner.worker,
            port,
            intakes=intakes.records,
            idle_s=intakes.idle_s,
            missing=missing.faults,
        )
    except OSError as error:
        text = f"--health-port: cannot listen on port {port}: {error.strerror}"
        raise ConfigError(text) from error
    server.start()
    stack.callback(server.close)
    monitor.start()
    stack.callback(monitor.close)
    log.info("health", port=server.port)
