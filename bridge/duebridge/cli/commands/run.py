"""`duebridge run`: a worker process, from its start to its drain."""

import os
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duebridge.cli.exits import finish
from duebridge.cli.session import ConfigOption, config_path, opened_store
from duebridge.cli.signals import Signals
from duebridge.errors import BridgeError, ConfigError

if TYPE_CHECKING:
    from duebridge.config.models import Config
    from duebridge.intake.process import IntakeRunner
    from duebridge.store.server.connection import Connection
    from duebridge.worker.process import Runner
    from duebridge.worker.reload import Changes

HOST = "0.0.0.0"  # noqa: S104 - where HealthServer listens

HealthPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        envvar="DUEBRIDGE_HEALTH_PORT",
        help="Serve /livez, /readyz, /metrics and /due on this port; 0 takes a free one.",
    ),
]

UntilEmptyOption = Annotated[
    bool, typer.Option("--until-empty", help="Exit once nothing in the store waits for delivery.")
]

OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="intake:NAME",
        help="Run this intake alone, without lanes; may be repeated.",
        show_default=False,
    ),
]
INTAKE = "intake:"


def run(
    context: typer.Context,
    config: ConfigOption = None,
    health_port: HealthPort = None,
    until_empty: UntilEmptyOption = False,
    only: OnlyOption = None,
) -> None:
    """Deliver due envelopes, and take messages in, until SIGTERM or SIGINT.

    Intakes of the configuration run beside the lanes; with --only intake:NAME those alone, and
    nothing is delivered.

    At the signal it drains, intakes first, and exits 0. The drain takes at most worker.drain
    (default 20s); a second signal ends the process at once. Logs go to standard error: text on a
    terminal, else one JSON object per line.

    When the configuration file changes, or at SIGHUP, the worker applies its routes, all or none,
    and logs config_swapped or config_refused with the reasons. A change of store, brokers or worker
    needs a restart.

    With --until-empty it also exits when no configured route has an envelope to deliver or a dead
    letter to send: with 0 if the store is empty, with 1 if it was stopped earlier or the store
    still has envelopes that no worker takes out, each route logged as left_in_store.
    """
    from duebridge.config.load import load_config_text, read_config_text
    from duebridge.telemetry.logs import configure_logs

    path = config_path(context, config)
    text = read_config_text(path)
    settings = load_config_text(text, str(path))
    names = chosen_intakes(settings, only, until_empty=until_empty)
    configure_logs()
    run_process(settings, path, text, names, health_port, bool(only), until_empty)


def chosen_intakes(settings: "Config", only: list[str] | None, *, until_empty: bool) -> list[str]:
    """Return the intakes to run; raises `ConfigError` for an unknown one."""
    from duebridge.admin.intakes import find_intake

    if not only:
        return list(settings.intakes)
    if until_empty:
        raise ConfigError("--until-empty: expected no --only beside it, which delivers nothing")
    for given in only:
        if not given.startswith(INTAKE):
            raise ConfigError(f"--only: expected {INTAKE}NAME; got {given!r}")
        find_intake(settings, given.removeprefix(INTAKE))
    return list(dict.fromkeys(given.removeprefix(INTAKE) for given in only))


def run_process(
    settings: "Config",
    path: Path,
    text: str,
    names: list[str],
    health_port: int | None,
    is_alone: bool,
    until_empty: bool,
) -> None:
    """Run intakes and lanes until a signal; `is_alone`: no lanes, so that nothing is delivered."""
    from duebridge.admin.checks.drain_check import DrainCheck
    from duebridge.config.broker_access import open_publishers
    from duebridge.intake.process import IntakeRunner
    from duebridge.interpreter import short_turns, tuned_gc
    from duebridge.store.server.connection import REPEAT_FOR_S
    from duebridge.store.workers import Workers
    from duebridge.telemetry.metrics import observe_store_call
    from duebridge.telemetry.tracing import traced_process
    from duebridge.worker.process import Runner
    from duebridge.worker.reload import LOOK_EVERY_S, Reload
    from duebridge.worker.reporting.status import StatusWriter

    with ExitStack() as stack:
        stack.enter_context(tuned_gc())
        if names:
            stack.enter_context(short_turns())
        for_lanes = without_routes(settings) if is_alone else settings
        publishers = open_publishers(for_lanes, stack)
        connection = stack.enter_context(opened_store(settings, REPEAT_FOR_S))
        connection.actor = ""  # what a worker does is nobody's command
        connection.observe = observe_store_call
        is_watched, tracing = health_port is not None, stack.enter_context(traced_process())
        runner = Runner(for_lanes, connection, publishers, is_watched=is_watched, tracing=tracing)
        intakes = IntakeRunner(settings, connection, names, tracing=tracing)
        if health_port is not None:
            serve_health(runner, intakes, connection, health_port, stack)
        signals = Signals()
        swap = intakes.swap if is_alone else partial(swap_both, runner, intakes)
        reload = Reload(path, text, swap)
        drain_check = DrainCheck(connection)
        workers = Workers(connection, settings.store.namespace)
        status = StatusWriter(runner.worker, workers, intakes=intakes.records)
        status.start()
        try:
            runner.start()
            intakes.start()
            while not signals.wait(LOOK_EVERY_S):
                reload.run_once(is_asked=signals.take_reload())
                if not (runner.is_alive and intakes.is_alive):
                    raise BridgeError("a loop of this process has ended; see the log")
                if until_empty and drain_check.is_complete(runner.config):
                    break
        finally:
            began = time.monotonic()
            status.close()
            if not all((intakes.drain(), runner.drain(began))):
                end_at_once(sys.exc_info()[1])
    if until_empty:
        finish(is_yes=drain_check.is_empty)


def swap_both(runner: "Runner", intakes: "IntakeRunner", config: "Config") -> "Changes":
    """Apply the routes of another configuration to lanes and intakes, or to none if it raises."""
    changes = runner.swap(config)
    intakes.follow(config)
    return changes


def without_routes(settings: "Config") -> "Config":
    """Return the configuration of lanes that deliver nothing."""
    return settings.model_copy(update={"routes": {}})


def end_at_once(error: BaseException | None) -> None:
    """End the process without waiting for a client library that hangs."""
    if error is not None:
        print(f"duebridge: {error}", file=sys.stderr)  # noqa: T201 - the command's last word
    sys.stderr.flush()
    os._exit(0 if error is None else 1)


def serve_health(
    runner: "Runner",
    intakes: "IntakeRunner",
    connection: "Connection",
    port: int,
    stack: ExitStack,
) -> None:
    """Serve probes until the stack unwinds; raises `ConfigError` if the port is taken."""
    import structlog

    from duebridge.worker.reporting.gauges import register
    from duebridge.worker.reporting.missing import MissingRoutes
    from duebridge.worker.reporting.probes import HealthServer
    from duebridge.worker.reporting.store_monitor import StoreMonitor

    store = runner.config.store
    absent = runner.absent if runner.config.routes else dict[str, int]
    monitor = StoreMonitor(connection, absent, store.allow_unfit, lambda: intakes.config.needs)
    register(runner.views, runner.lanes.values(), monitor)
    missing = MissingRoutes(absent, lambda: runner.config, lambda: monitor.snapshot)
    try:
        intake = (intakes.records, intakes.idle_s)
        server = HealthServer(runner.worker, port, HOST, *intake, missing.faults)
    except OSError as error:
        raise ConfigError(
            f"--health-port: cannot listen on {HOST}:{port}: {error.strerror}"
        ) from error
    server.start()
    stack.callback(server.close)
    monitor.start()
    stack.callback(monitor.close)
    structlog.get_logger().info("health", port=server.port)
