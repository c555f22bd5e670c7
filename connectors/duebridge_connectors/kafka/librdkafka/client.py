"""Wraps one librdkafka producer and the thread that serves its callbacks."""

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from duebridge.ports.publisher import BrokerUnavailable, Delivery
from duebridge_connectors.kafka.attempt import AttemptError, Deadline, not_sent
from duebridge_connectors.kafka.errors import RequestFailed
from duebridge_connectors.kafka.headers import plain_headers
from duebridge_connectors.kafka.leaders import Leaders
from duebridge_connectors.kafka.librdkafka.errors import answered_refusal
from duebridge_connectors.kafka.login import Credentials, TokenFailed

# Limit of the wait for the last delivery reports; a purge produces them at once.
END_S = 2.0
# A ping is a metadata request, which needs a topic name; the topic need not exist.
NO_TOPIC = "duebridge-is-anyone-there"
_POLL_S = 1.0

Answered = Callable[[KafkaError | None, Message], None]

log = logging.getLogger(__name__)


@contextmanager
def building_client(request_token: object) -> Iterator[None]:
    """Ask for a token, if by one, and raise `BrokerUnavailable` for what building a client does."""
    try:
        if callable(request_token):
            request_token("")  # librdkafka would hide its error for ten seconds
        yield
    except TokenFailed as error:
        raise BrokerUnavailable(str(error)) from error
    except KafkaException as error:  # such as a deleted certificate file
        raise BrokerUnavailable(f"no client: {error.args[0].str()}") from error


class LibrdkafkaClient:
    """A producer, built without a connection. Thread-safe.

    The constructor raises the errors of `confluent_kafka.Producer`.
    """

    _producer: Any  # Any: the stubs reject null headers. None once it has ended

    def __init__(self, config: Mapping[str, object]) -> None:
        self.turn = threading.Lock()
        self.has_ended = False
        self.leaders = Leaders()
        self._known: set[str] = set()
        self._errors = ConnectionErrors()
        self._producer = Producer({**config, "error_cb": self._errors.note, "logger": log})
        self._thread = threading.Thread(target=self._serve, name="librdkafka", daemon=True)
        self._thread.start()

    @property
    def is_away(self) -> bool:
        """Whether all brokers have been down since the last metadata answer."""
        return self._errors.is_away

    def send(self, delivery: Delivery, on_answer: Answered) -> None:
        """Hand over one delivery; the caller holds `turn` and has checked `has_ended`.

        The client's thread calls `on_answer`. Raises the errors of `Producer.produce`, and
        `ValueError` for an unprintable header name.
        """
        headers = plain_headers(delivery.headers, delivery.properties)
        for name, _ in headers:
            if not name.isprintable():  # the binding would crash or truncate it
                raise ValueError(f"header name {name!r}: expected printable characters only")
        # Positional arguments: keywords cost more.
        self._producer.produce(
            delivery.target.topic, delivery.body, delivery.key, -1, on_answer, None, 0, headers
        )

    def knows(self, topic: str) -> bool:
        """Return whether the last lookup or answer found the topic; sends no request."""
        return topic in self._known

    def forget(self, topic: str) -> None:
        """Require a new lookup of the topic."""
        self._known.discard(topic)

    def look_up(self, topics: Collection[str], timeout_s: float) -> dict[str, AttemptError | None]:
        """Request the metadata of topics; return a refusal for each unusable one, else None."""
        deadline = Deadline(timeout_s)
        return {topic: self._look_up(topic, deadline.left_s()) for topic in topics}

    def _look_up(self, topic: str, timeout_s: float) -> AttemptError | None:
        try:
            error = self._request_metadata(topic, timeout_s)
        except RequestFailed as failure:
            return AttemptError(not_sent(str(failure)))
        if error is not None:
            self.forget(topic)
            return answered_refusal(error)
        self._known.add(topic)
        return None

    def log_in(self, login: Credentials) -> None:
        """Let later connections use this user and password; open ones stay."""
        producer = self._producer
        if producer is not None:
            producer.set_sasl_credentials(login.user, login.password)

    def ping(self, timeout_s: float) -> None:
        """Raise `RequestFailed` unless a broker answers within `timeout_s`."""
        self._request_metadata(NO_TOPIC, timeout_s)

    def _request_metadata(self, topic: str, timeout_s: float) -> KafkaError | None:
        producer = self._producer
        if producer is None:
            raise RequestFailed("the client has ended")
        try:
            found = producer.list_topics(topic, timeout_s)
        except KafkaException as error:
            raise RequestFailed(self._errors.message or error.args[0].str()) from error
        except (RuntimeError, ValueError):  # an invalid topic name
            return KafkaError(KafkaError.TOPIC_EXCEPTION)
        self._errors.clear()
        partitions = found.topics[topic].partitions.values()
        self.leaders.note(topic, [(each.id, each.leader) for each in partitions])
        answer: KafkaError | None = found.topics[topic].error
        return answer

    def retire(self) -> None:
        """Stop accepting deliveries; those in flight are answered as purged."""
        with self.turn:
            if not self.has_ended and self._producer is not None:
                self.has_ended = True
                self._producer.purge()

    def abandon(self) -> None:
        """Leak the producer in a forked child: its destructor would wait for missing threads."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))

    def _serve(self) -> None:
        """Serve callbacks until the client has ended and nothing is in flight."""
        producer = self._producer
        while not self.has_ended:
            _poll(producer, _POLL_S)
        end_at = time.monotonic() + END_S
        while len(producer) and time.monotonic() < end_at:
            _poll(producer, 0.1)
        # Usually the last reference; dropping it joins librdkafka's threads.
        self._producer = None


class ConnectionErrors:
    """The last connection error; a separate object, so that no cycle keeps the client alive."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget it: a broker has answered."""
        self.message, self.is_away = "", False

    def note(self, error: KafkaError) -> None:
        """Note an error; librdkafka's `error_cb`."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.is_away = True
        else:
            self.message = f"{error.name()} {error.str()}"


def _poll(producer: Producer, timeout_s: float) -> None:
    try:
        producer.poll(timeout_s)
    except Exception:  # from a callback; the thread must go on serving
        log.exception("a librdkafka callback failed")
