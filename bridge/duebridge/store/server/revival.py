"""Starts the server of an embedded store that died again, for who has it open as the same user.

One that was stopped stays so until it is opened again: it took its socket along.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
import structlog

from duebridge.errors import StoreError
from duebridge.store.server.embedded import (
    checked_socket_path,
    locked,
    socket_path,
    spawn_server,
)

REVIVE_EVERY_S, LONGEST_PAUSE_S = 1.0, 60.0

log = structlog.get_logger()


class Reviver:
    """Starts a server that died again; at most once a second, and more rarely while it fails.

    Shared by threads. A process that was forked goes on with what its parent knew.
    """

    def __init__(
        self, directory: str | Path, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._home = Path(directory).expanduser().resolve()
        self._monotonic = monotonic
        self._pause_s = REVIVE_EVERY_S
        self._next_at = self._started_at = float("-inf")
        self._is_unproven = False
        self.fault = ""

    @property
    def is_in_doubt(self) -> bool:
        """Whether a server was started, or could not be, and has not answered since."""
        return self._is_unproven or bool(self.fault)

    def __call__(self) -> None:
        """Start the server unless one runs, and do not wait for it: the call is made again."""
        now = self._monotonic()
        if now < self._next_at or not self._is_ours():
            return
        self._wait()
        try:
            self._start(now)
        except (OSError, StoreError) as error:
            self._failed(f"the embedded server of {self._home} cannot be started: {error}")

    def answered(self) -> None:
        """Note that the server is up: if it dies, it is started again within a second."""
        self._pause_s, self._is_unproven, self.fault = REVIVE_EVERY_S, False, ""
        self._wait()

    def _is_ours(self) -> bool:
        """Whether the server that died ran as this user: else its owner could not use ours."""
        try:
            return socket_path(self._home).stat().st_uid == os.getuid()
        except OSError:  # it was stopped, and took its socket along
            return False

    def _start(self, called_at: float) -> None:
        with locked(self._home) as lock:
            if lock is None or self._started_at >= called_at:  # by another thread, meanwhile
                return
            self._started_at = self._monotonic()
            if self._is_unproven:  # who has the lock knows that no server runs
                self._failed(f"the embedded server ended again: see {self._home}/server.log")
            spawn_server(self._home, checked_socket_path(self._home), lock)
            self._is_unproven = True

    def _wait(self) -> None:
        self._next_at = self._monotonic() + self._pause_s

    def _failed(self, fault: str) -> None:
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._wait()
        if not self.fault and structlog.is_configured():  # else it would be standard output
            log.warning("embedded_server_down", error=fault)
        self.fault = fault


class RevivingConnection(redis.UnixDomainSocketConnection):
    """To an embedded server; one that died has left its socket, and one that was stopped has not.

    So what `stop_embedded` ended stays ended until it is opened again.
    """

    def __init__(self, *, reviver: Reviver, **options: Any) -> None:
        """Call `reviver` where nobody listens at the socket."""
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._reviver = reviver

    def on_connect(self) -> None:
        """Log in; ask a server that was started again whether it is done loading."""
        super().on_connect()  # type: ignore[no-untyped-call]
        if self._reviver.is_in_doubt:
            self.send_command("PING", check_health=False)  # type: ignore[no-untyped-call]
            self.read_response()
            self._reviver.answered()

    def _connect(self) -> Any:
        try:
            return super()._connect()  # type: ignore[no-untyped-call]
        except ConnectionRefusedError as error:
            self._reviver()
            if fault := self._reviver.fault:
                raise ConnectionRefusedError(error.errno, f"{error.strerror}; {fault}") from error
            raise
