"""One librdkafka producer, the thread that hears its answers, and how both end."""

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from duebridge.ports.publisher import Delivery
from duebridge_connectors.kafka.attempt import Deadline, Refusal, not_sent
from duebridge_connectors.kafka.errors import RequestFailed
from duebridge_connectors.kafka.headers import plain_headers
from duebridge_connectors.kafka.librdkafka.errors import answered_refusal

# A producer that ends waits so long for the last answers, which a purge gives at once.
END_S = 2.0
# Librdkafka wants a topic even of who only asks whether anyone is there; this one need not exist.
NO_TOPIC = "duebridge-is-anyone-there"
_POLL_S = 1.0

Answered = Callable[[KafkaError | None, object], None]

log = logging.getLogger(__name__)


class LibrdkafkaClient:
    """A producer, built without a connection. Every method may be called by several threads.

    `turn` is held by the thread that hands over. Raises what `confluent_kafka.Producer` does.
    """

    _producer: Any  # its stubs know no header of None; None once it has ended

    def __init__(self, config: Mapping[str, object]) -> None:
        self.turn = threading.Lock()
        self.has_ended = False
        self._known: set[str] = set()
        self._errors = _ConnectionErrors()
        self._producer = Producer({**config, "error_cb": self._errors.note, "logger": log})
        self._thread = threading.Thread(target=self._serve, name="librdkafka", daemon=True)
        self._thread.start()

    @property
    def is_away(self) -> bool:
        """Whether it has lost every broker since the last answer to a question."""
        return self._errors.is_away

    def send(self, delivery: Delivery, on_answer: Answered) -> None:
        """Hand one delivery over, with `turn` held and not `has_ended`.

        `on_answer` is called on a thread of this client's own. Raises what `Producer.produce` does,
        or ValueError.
        """
        headers = plain_headers(delivery.headers, delivery.properties)
        for name, _ in headers:
            if not name.isprintable():  # the binding would crash, or cut the name short
                raise ValueError(f"header name {name!r}: expected printable characters only")
        # By place: by name it would cost more.
        self._producer.produce(
            delivery.target.topic, delivery.body, delivery.key, -1, on_answer, None, 0, headers
        )

    def knows(self, topic: str) -> bool:
        """Tell whether a topic was there when it was last heard of, without asking the broker."""
        return topic in self._known

    def forget(self, topic: str) -> None:
        """Look a topic up again before it is next sent to."""
        self._known.discard(topic)

    def look_up(self, topics: Collection[str], timeout_s: float) -> dict[str, Refusal | None]:
        """Ask the broker for topics; return None for each that is known now, or why it is not."""
        deadline = Deadline(timeout_s)
        return {topic: self._look_up(topic, deadline.left_s()) for topic in topics}

    def _look_up(self, topic: str, timeout_s: float) -> Refusal | None:
        try:
            error = self._request_metadata(topic, timeout_s)
        except RequestFailed as reason:
            return Refusal(not_sent(str(reason)))
        if error is not None:
            return answered_refusal(error)
        self._known.add(topic)
        return None

    def ping(self, timeout_s: float) -> None:
        """Raise `RequestFailed` unless a broker answers within `timeout_s` seconds."""
        self._request_metadata(NO_TOPIC, timeout_s)

    def _request_metadata(self, topic: str, timeout_s: float) -> KafkaError | None:
        producer = self._producer
        if producer is None:
            raise RequestFailed("the client has ended")
        try:
            found = producer.list_topics(topic, timeout_s)
        except KafkaException as error:
            raise RequestFailed(self._errors.words or error.args[0].str()) from error
        except (RuntimeError, ValueError):  # no topic can have this name
            return KafkaError(KafkaError.TOPIC_EXCEPTION)
        self._errors.is_over()
        answer: KafkaError | None = found.topics[topic].error
        return answer

    def retire(self) -> None:
        """End it: nothing is taken any more, and what is under way is answered as purged."""
        with self.turn:
            if not self.has_ended and self._producer is not None:
                self.has_ended = True
                self._producer.purge()

    def abandon(self) -> None:
        """Forget it in a forked child, where its threads are missing: its end would wait for them.

        The reference keeps it from ending even with the interpreter.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))

    def _serve(self) -> None:
        """Serve answers and log lines until it has ended and nothing is left unanswered."""
        producer = self._producer
        while not self.has_ended:
            _poll(producer, _POLL_S)
        end_at = time.monotonic() + END_S
        while len(producer) and time.monotonic() < end_at:
            _poll(producer, 0.1)
        # The last reference, if nobody asks just now: to drop it waits for librdkafka's threads.
        self._producer = None


class _ConnectionErrors:
    """What librdkafka last said about its connections; apart, so that no cycle keeps a client."""

    def __init__(self) -> None:
        self.is_over()

    def is_over(self) -> None:
        self.words, self.is_away = "", False

    def note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.is_away = True
        else:
            self.words = f"{error.name()} {error.str()}"


def _poll(producer: Producer, timeout_s: float) -> None:
    try:
        producer.poll(timeout_s)
    except Exception:  # of a callback; nobody else would hear the next answers
        log.exception("an answer of librdkafka was lost")
