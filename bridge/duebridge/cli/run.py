"""`duebridge run`: a worker process, from its start to its drain."""

import os
import signal
import time
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Annotated

import structlog
import typer

from duebridge.admin.emptying import Emptying
from duebridge.cli import INTERRUPTED
from duebridge.cli.exits import finish
from duebridge.cli.output import STDERR
from duebridge.cli.publishers import open_publishers
from duebridge.cli.session import ConfigOption, config_path, opened_store
from duebridge.config.load import load_config_text, read_config_text
from duebridge.telemetry.logs import configure_logs
from duebridge.telemetry.metrics import observe_store_call
from duebridge.telemetry.tracing import traced_process
from duebridge.worker.gauges import register
from duebridge.worker.probes import HealthServer
from duebridge.worker.process import Runner, relaxed_collector
from duebridge.worker.reload import LOOK_EVERY_S, Reload
from duebridge.worker.store_monitor import StoreWatch

LOOK_UP_S = 0.2

log = structlog.get_logger()


HealthPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        envvar="DUEBRIDGE_HEALTH_PORT",
        help="Answer /livez, /readyz, /metrics and /due on this port; 0 takes a free one.",
    ),
]

UntilEmptyOption = Annotated[
    bool, typer.Option("--until-empty", help="End once nothing in the store waits any more.")
]


def run(
    context: typer.Context,
    config: ConfigOption = None,
    health_port: HealthPort = None,
    until_empty: UntilEmptyOption = False,
) -> None:
    """Deliver due envelopes until SIGTERM or SIGINT.

    Then drain and exit 0. The drain takes at most worker.drain (default 20s); a second signal
    ends the process at once. Logs go to standard error: text on a terminal, else JSON, a line
    each.

    When the configuration file changes, or at SIGHUP, the worker takes its routes over, all at once
    or none, and logs config_swapped or config_refused with the reasons. What stands in store,
    brokers and worker needs a restart.

    With --until-empty it also ends when no route of the configuration has an envelope that is to
    be delivered, or to be sent as a dead letter. It then exits 0 if the store is empty, and 1 if it
    was stopped before that, or something is left that no worker takes out: each is logged as
    left_in_store.
    """
    path = config_path(context, config)
    text = read_config_text(path)
    settings = load_config_text(text, str(path))
    configure_logs()
    with ExitStack() as stack:
        stack.enter_context(relaxed_collector())
        publishers = open_publishers(settings, stack)
        connection = stack.enter_context(opened_store(settings))
        connection.observe = observe_store_call
        is_watched, tracing = health_port is not None, stack.enter_context(traced_process())
        runner = Runner(settings, connection, publishers, is_watched=is_watched, tracing=tracing)
        if health_port is not None:
            watch = StoreWatch(connection, runner.absent, settings.store.allow_unfit)
            serve_health(runner, watch, health_port, stack)
        signals = Signals()
        reload = Reload(path, text, runner.swap)
        emptying = Emptying(connection)
        try:
            runner.start()
            while not signals.wait(LOOK_EVERY_S):
                reload.run_once(is_asked=signals.take_reload())
                if until_empty and emptying.is_over(runner.config):
                    break
        finally:
            runner.drain()
    if until_empty:
        finish(is_yes=emptying.is_empty)


def serve_health(runner: Runner, watch: StoreWatch, port: int, stack: ExitStack) -> None:
    """Answer probes until the stack is unwound."""
    register(runner.stations, runner.lanes.values(), watch)
    server = HealthServer(runner.workers, port)
    server.start()
    stack.callback(server.close)
    watch.start()
    stack.callback(watch.close)
    log.info("health", port=server.port)


class Signals:
    """What this process is told from now on.

    The first SIGTERM or SIGINT ends `wait`, the second ends the process, with 130. SIGHUP asks for
    the configuration to be read again; where it says that our terminal was closed, it stops us too.
    """

    def __init__(self) -> None:
        # A queue, since an Event that is set inside a handler may deadlock with its own wait.
        self._arrived: SimpleQueue[int] = SimpleQueue()
        self._is_stopping = False
        self._wants_reload = False
        self._has_terminal = os.isatty(STDERR)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._handle)

    def wait(self, within_s: float) -> bool:
        """Return True once the process is to stop; False after that time, or to reload.

        The kernel may hand a signal to any thread, and then nothing interrupts this one's wait:
        Python runs the handler only when this thread next looks up.
        """
        give_up_at = time.monotonic() + within_s
        while (left_s := give_up_at - time.monotonic()) > 0:
            with suppress(Empty):
                self._arrived.get(timeout=min(left_s, LOOK_UP_S))
                break
        return self._is_stopping

    def take_reload(self) -> bool:
        """Whether SIGHUP came since the last time this was asked."""
        wants_reload, self._wants_reload = self._wants_reload, False
        return wants_reload

    def _handle(self, number: int, _: FrameType | None) -> None:
        is_closed = self._has_terminal and not os.isatty(STDERR)
        if number == signal.SIGHUP and not is_closed:
            self._wants_reload = True
        elif self._is_stopping:
            os._exit(INTERRUPTED)
        else:
            self._is_stopping = True
        self._arrived.put(number)
