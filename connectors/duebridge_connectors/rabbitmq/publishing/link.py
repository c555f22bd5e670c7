"""Maintains a publisher's connection on a background thread."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import uniform
from time import monotonic
from typing import Any, TypeAlias

import structlog
from pika.adapters.select_connection import IOLoop
from pika.connection import Parameters

from duebridge.errors import ConfigError
from duebridge.ports.publisher import Outcome
from duebridge_connectors.rabbitmq.errors import (
    NotSent,
    PublisherClosed,
    Unanswered,
    not_sent,
    root_cause,
    unanswered,
)
from duebridge_connectors.rabbitmq.publishing.batch import PublishBatch
from duebridge_connectors.rabbitmq.publishing.connection import PublishConnection
from duebridge_connectors.rabbitmq.publishing.encoding import abort
from duebridge_connectors.rabbitmq.publishing.session import PublishSession

FIRST_DELAY_S = 0.2
MOST_DELAY_S = 2.0
LASTED_S = 5.0  # a connection that ends sooner delays the next one as a failed one does
CLOSE_TIMEOUT_S = 1.0  # limit of an orderly close
ABORT_TIMEOUT_S = 0.2

CLOSED = not_sent(PublisherClosed("the publisher is closed"))

ReadParameters: TypeAlias = Callable[[], Parameters]

log = structlog.get_logger()


class Link:
    """Connects at once and reconnects until closed.

    Batches wait during a connection attempt and are refused between two attempts.
    """

    def __init__(
        self,
        parameters: Parameters,
        jitter: Callable[[float, float], float] = uniform,
        read_parameters: ReadParameters | None = None,
        known_defect: str = "",
    ) -> None:
        """Start; log no traceback for `known_defect`, by which the link before this one ended."""
        self.defect = known_defect
        self._parameters = parameters
        self._read_parameters = read_parameters or (lambda: parameters)
        self._jitter = jitter
        self._handover = threading.Lock()
        self._closing = threading.Lock()
        self._is_closed = False
        self._session: PublishSession | None = None
        self._connection: Any = None
        self._waiting: list[PublishBatch] = []
        self._refusal: Outcome | None = None
        self._failed_attempts = 0
        self._opened_at = 0.0
        self._last_error = ""
        self._loop: Any = IOLoop()
        self._thread = threading.Thread(target=self._run, name="rabbitmq", daemon=True)
        self._thread.start()

    # For any thread.

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs: until it is closed, or breaks down."""
        return self._thread.is_alive()

    @property
    def is_blocked(self) -> bool:
        """Whether the broker has blocked the connection."""
        session = self._session
        return session is not None and session.is_blocked

    def publish(self, batch: PublishBatch, seconds: float) -> list[Outcome]:
        """Hand over a batch; return its outcomes when complete or after the timeout."""
        with self._closing:
            if self._is_closed:
                batch.settle_rest(CLOSED)
            else:
                self._loop.add_callback_threadsafe(partial(self._accept, batch))
        batch.wait(seconds)
        late = f"within {seconds:g} seconds"
        with self._handover:
            return batch.end(
                sent=unanswered(Unanswered(f"no confirm {late}")),
                unsent=not_sent(NotSent(f"not sent {late}")),
            )

    def close(self) -> None:
        """Close the connection; deliveries in flight become INDETERMINATE. Idempotent."""
        with self._closing:
            if not self._is_closed:
                self._is_closed = True
                self._loop.add_callback_threadsafe(self._close_gracefully)
        self._thread.join()

    # On the connection's thread.

    def _run(self) -> None:
        error: Exception = PublisherClosed("the publisher is closed")
        try:
            self._connect()
            self._loop.start()
        except Exception as defect:
            self._log_defect(repr(defect))
            error = defect
        with self._closing:
            self._is_closed = True
        self._give_up(error)
        if not isinstance(error, PublisherClosed):
            self._end_connection(not_sent(error))
        self._loop.close()

    def _log_defect(self, defect: str) -> None:
        """Log the defect that ends the thread, with its traceback unless it is known."""
        say = log.debug if defect == self.defect else log.exception
        say("rabbitmq_thread_failed", error=defect)
        self.defect = defect

    def _end_connection(self, refusal: Outcome) -> None:
        """Close the socket of a thread that failed: it would stay open until it is collected."""
        self._refusal = refusal  # of what was handed over meanwhile
        with suppress(Exception):
            self._abort()
            self._loop.start()

    def _connect(self) -> None:
        """Connect, with the password and the certificate that the files have now."""
        self._refusal = None
        with suppress(ConfigError):  # a file that is being replaced
            self._parameters = self._read_parameters()
        self._connection = PublishConnection(
            self._parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_closed,
            on_close_callback=self._on_closed,
            custom_ioloop=self._loop,
        )

    def _accept(self, batch: PublishBatch) -> None:
        if self._session is not None:
            self._session.accept(batch)
        elif self._refusal is not None:
            batch.settle_rest(self._refusal)
        else:
            self._waiting.append(batch)

    def _on_open(self, connection: Any) -> None:
        log.info("rabbitmq_connected", host=self._parameters.host, port=self._parameters.port)
        self._opened_at = monotonic()
        self._last_error = ""
        self._session = PublishSession(connection, self._handover)
        waiting, self._waiting = self._waiting, []
        for batch in waiting:
            self._session.accept(batch)

    def _on_closed(self, _: Any, reason: Exception) -> None:
        error = root_cause(reason)
        was_open = self._session is not None
        self._connection = None
        self._give_up(error)
        if self._is_closed:
            self._loop.stop()
            return
        delay_s = self._next_delay_s(was_open)
        self._log_failure(repr(error), round(delay_s, 2))
        self._refusal = not_sent(error)
        self._loop.call_later(delay_s, self._connect)

    def _log_failure(self, error: str, delay_s: float) -> None:
        """Warn if the cause has changed; log repeated failures at debug level."""
        say = log.debug if error == self._last_error else log.warning
        say("rabbitmq_not_connected", host=self._parameters.host, error=error, retry_in_s=delay_s)
        self._last_error = error

    def _give_up(self, error: BaseException) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.give_up(error)
        waiting, self._waiting = self._waiting, []
        for batch in waiting:
            batch.settle_rest(not_sent(error))

    def _next_delay_s(self, was_open: bool) -> float:
        """Return a random delay that doubles, unless the connection has lasted."""
        if was_open and monotonic() - self._opened_at > LASTED_S:
            self._failed_attempts = 0
        max_s = min(MOST_DELAY_S, FIRST_DELAY_S * 2**self._failed_attempts)
        self._failed_attempts = min(self._failed_attempts + 1, 10)
        return self._jitter(max_s / 2, max_s)

    # Closing, on the connection's thread.

    def _close_gracefully(self) -> None:
        self._refusal = CLOSED
        is_open = self._session is not None
        self._give_up(PublisherClosed("the publisher was closed"))
        if self._connection is None:
            self._loop.stop()
        elif is_open:
            self._connection.close()
            self._loop.call_later(CLOSE_TIMEOUT_S, self._abort)
        else:
            self._abort()  # pika's close fails an assertion during the handshake

    def _abort(self) -> None:
        """Abort a connection whose broker does not answer the close."""
        self._loop.call_later(ABORT_TIMEOUT_S, self._loop.stop)
        abort(self._connection)
