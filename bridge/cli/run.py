"""`duebridge run`: a worker process, from its start to its drain."""

import os
import signal
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Annotated

import structlog
import typer

from bridge import metrics
from bridge.cli import INTERRUPTED
from bridge.cli.publishers import open_publishers
from bridge.cli.session import ConfigOption, load, opened_store
from bridge.health import HealthServer
from bridge.logs import configure_logs
from bridge.runner import Runner

LOOK_UP_S = 0.2

log = structlog.get_logger()


HealthPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        envvar="DUEBRIDGE_HEALTH_PORT",
        help="Answer /livez, /readyz and /metrics on this port; 0 takes a free one.",
    ),
]


def run(
    context: typer.Context, config: ConfigOption = None, health_port: HealthPort = None
) -> None:
    """Deliver due envelopes until SIGTERM or SIGINT.

    Then drain and exit 0. The drain takes at most worker.drain (default 20s); a second signal
    ends the process at once. Logs go to standard error: text on a terminal, else JSON, a line
    each.
    """
    settings = load(context, config)
    configure_logs()
    with ExitStack() as stack:
        publishers = open_publishers(settings, stack)
        connection = stack.enter_context(opened_store(settings))
        runner = Runner(settings, connection, publishers)
        if health_port is not None:
            serve_health(runner, health_port, stack)
        stop = StopSignals()
        runner.start()
        stop.wait()
        runner.drain()


def serve_health(runner: Runner, port: int, stack: ExitStack) -> None:
    """Answer probes until the stack is unwound."""
    metrics.register(
        [each for worker in runner.workers for each in worker.stations], runner.lanes.values()
    )
    server = HealthServer(runner.workers, port)
    server.start()
    stack.callback(server.close)
    log.info("health", port=server.port)


class StopSignals:
    """SIGTERM and SIGINT from now on: the first ends `wait`, the second the process, with 130."""

    def __init__(self) -> None:
        # A queue, since an Event that is set inside a handler may deadlock with its own wait.
        self._arrived: SimpleQueue[int] = SimpleQueue()
        self._is_asked = False
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def wait(self) -> None:
        """Return once a signal came.

        The kernel may hand a signal to any thread, and then nothing interrupts this one's wait:
        Python runs the handler only when this thread next looks up.
        """
        while True:
            try:
                self._arrived.get(timeout=LOOK_UP_S)
            except Empty:
                continue
            return

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._is_asked:
            os._exit(INTERRUPTED)
        self._is_asked = True
        self._arrived.put(number)
