"""The pauses of a source before it connects again after failures."""

import threading
import time

from duebridge.errors import BridgeError, ConfigError
from duebridge.ports.publisher import BrokerUnavailable

FIRST_S = 0.1
MOST_S = 5.0


class ReconnectBackoff:
    """Doubles the pause before each attempt that follows a failure, up to `MOST_S`."""

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing
        self._pause_s = 0.0
        self._next_at = 0.0
        self._failure: BridgeError = BrokerUnavailable("not connected")

    def wait(self, wait_s: float) -> None:
        """Wait for the next attempt; raises the last failure where it is later than `wait_s`."""
        left_s = self._next_at - time.monotonic()
        if left_s <= 0:
            return
        if self._closing.wait(min(left_s, wait_s)):
            raise BrokerUnavailable("the source is closed")
        if left_s > wait_s:
            kind = ConfigError if isinstance(self._failure, ConfigError) else BrokerUnavailable
            raise kind(str(self._failure))

    def failed(self, failure: BridgeError) -> None:
        """Note the failure of an attempt; one that `wait` raised was none, and puts off nothing."""
        if time.monotonic() < self._next_at:
            return
        self._failure = failure
        self._pause_s = min(MOST_S, max(FIRST_S, self._pause_s * 2))
        self._next_at = time.monotonic() + self._pause_s

    def succeeded(self) -> None:
        """Reset to the shortest pause."""
        self._pause_s = 0.0
