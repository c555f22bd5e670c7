"""The signals of a process that serves: to stop, to end at once, to reload."""

import os
import signal
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType

from duebridge.cli import INTERRUPTED
from duebridge.cli.output import STDERR

LOOK_UP_S = 0.2


class Terminal:
    """The terminal on which a process began to write its log, if it is to end with it.

    Who starts it with SIGHUP ignored, as `nohup` does, wants it to outlive the terminal.
    """

    def __init__(self) -> None:
        self.is_outlived = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._is_there = os.isatty(STDERR) and not self.is_outlived

    @property
    def is_closed(self) -> bool:
        """Whether it was closed since."""
        return self._is_there and not os.isatty(STDERR)


def outlive_hangups() -> None:
    """Let SIGHUP change nothing, but where the terminal closed: then it is as a SIGTERM."""
    terminal = Terminal()

    def handle(*_: object) -> None:
        if terminal.is_closed:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the shell and the kernel both send one
            signal.raise_signal(signal.SIGTERM)

    if not terminal.is_outlived:
        signal.signal(signal.SIGHUP, handle)


class Signals:
    """Handles the signals of a worker process.

    SIGHUP asks for a reload of the configuration; if it came because the terminal closed, it stops
    the worker. Before `begin` there is nothing to drain: SIGTERM ends the process with `unbegun`.
    After it the first SIGTERM or SIGINT ends `wait`, the second ends the process with 130.
    `stopped_at` is when the first one came, by the monotonic clock.
    """

    stopped_at: float | None = None

    def __init__(self, unbegun: int = 0) -> None:
        # A queue: an Event set inside a handler may deadlock with its own wait.
        self._arrived: SimpleQueue[int] = SimpleQueue()
        self._unbegun = unbegun
        self._has_begun = False
        self._wants_reload = False
        self._terminal = Terminal()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._handle)

    def begin(self) -> None:
        """Let signals that stop the process drain it from now on."""
        self._has_begun = True
        signal.signal(signal.SIGINT, self._handle)

    def wait(self, within_s: float) -> bool:
        """Return True once the process is to stop; False after `within_s`, or to reload.

        The kernel may deliver a signal to another thread, which does not interrupt this wait:
        Python runs the handler only when this thread runs bytecode again.
        """
        give_up_at = time.monotonic() + within_s
        while (left_s := give_up_at - time.monotonic()) > 0:
            with suppress(Empty):
                self._arrived.get(timeout=min(left_s, LOOK_UP_S))
                break
        return self.stopped_at is not None

    def take_reload(self) -> bool:
        """Return whether SIGHUP came since the last call."""
        wants_reload, self._wants_reload = self._wants_reload, False
        return wants_reload

    def _handle(self, number: int, _: FrameType | None) -> None:
        is_hangup = number == signal.SIGHUP
        if is_hangup and not self._terminal.is_closed:
            self._wants_reload = True
        elif not self._has_begun:
            os._exit(self._unbegun)
        elif self.stopped_at is None:
            self.stopped_at = time.monotonic()
        elif not is_hangup:  # of a closed terminal the shell and the kernel both tell
            os._exit(INTERRUPTED)
        self._arrived.put(number)
