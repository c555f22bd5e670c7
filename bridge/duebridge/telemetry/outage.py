"""Logs an outage with one line when it begins and one when it is over, and a count between."""

import threading
import time
from collections.abc import Callable

import structlog

from duebridge.errors import described

log = structlog.get_logger()


class Outage:
    """The outages of one thing: a store, a broker, a target. `fields` name it in every line.

    Thread-safe.
    """

    def __init__(
        self,
        begins: str,
        ends: str,
        monotonic: Callable[[], float] = time.monotonic,
        **fields: object,
    ) -> None:
        self._begins, self._ends = begins, ends
        self._monotonic = monotonic
        self._fields = fields
        self._since: float | None = None
        self._times = 0
        self._lock = threading.Lock()
        self.error = ""

    @property
    def is_on(self) -> bool:
        """Whether the outage is still going on."""
        return self._since is not None

    @property
    def lasted_s(self) -> float:
        """Seconds since the outage began; 0 if there is none."""
        return 0.0 if self._since is None else self._monotonic() - self._since

    def begin(self, error: str) -> None:
        """Note a failure; log only the first of an outage."""
        if self._is_first(error):
            log.warning(self._begins, error=error, **self._fields)

    def begin_fault(self, error: Exception) -> None:
        """Note an error of this program, as `begin` does; the log has its traceback."""
        text = described(error)
        if self._is_first(text):
            log.exception(self._begins, error=text, **self._fields)

    def _is_first(self, error: str) -> bool:
        with self._lock:
            self.error = error
            self._times += 1
            is_first = self._since is None
            if is_first:
                self._since = self._monotonic()
            return is_first

    def end(self, event: str = "", **more: object) -> None:
        """Log that it is over, after how long and how many failures, if it was on.

        `event` names another end than the usual one.
        """
        if self._since is None:
            return
        with self._lock:
            lasted_s, times, was_on = round(self.lasted_s, 3), self._times, self.is_on
            self._since, self._times, self.error = None, 0, ""
        if was_on:
            said = {"after_s": lasted_s, "failures": times, **self._fields, **more}
            log.info(event or self._ends, **said)
