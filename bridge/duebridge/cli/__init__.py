"""The command line. Importing this package is cheap: `main` imports the rest.

Until a command opens the store, SIGINT ends the process at once with 130: there is nothing to clean
up, and a `KeyboardInterrupt` inside an import may surface as another error or as a traceback.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """End the process with 130 at SIGINT; leaves a handler that is not Python's own alone.

    Only the outermost block ends the quiet: between two inner ones there is none of Python's own.
    """
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _end_process)
    try:
        yield
    finally:
        if is_default:
            allow_interrupts()


def allow_interrupts() -> None:
    """Let SIGINT raise `KeyboardInterrupt` again, for work that has to be cleaned up."""
    if signal.getsignal(signal.SIGINT) is _end_process:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> int:
    """Run the command of this process; returns its exit code (listed in `duebridge.cli.exits`)."""
    try:
        with quiet_interrupts():
            from duebridge.cli.app import app
            from duebridge.cli.exits import run_guarded

            return run_guarded(app)
    except KeyboardInterrupt:
        return INTERRUPTED


def _end_process(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
