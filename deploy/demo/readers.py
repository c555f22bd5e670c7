"""Independent consumers: they know the brokers and nothing of duebridge but its headers.

A reader notes every message it is given, copies included, and ends only at the end.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pika
from duebridge.audit import Arrived, fingerprint
from kafka import KafkaConsumer, TopicPartition

from ledger import Seen

FINISH_WITHIN_S = 30.0
IDLE_S = 0.2


Read: TypeAlias = "Callable[[threading.Event, Callable[[Seen], None]], None]"


class Reader:
    """Reads one broker in a thread of its own, from now until `finish`."""

    def __init__(self, read: Read) -> None:
        self.seen: list[Seen] = []
        self._read = read
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._read(self._stop, self.seen.append)
        except Exception as error:  # told by `finish`, in the main thread
            self._failure = error

    def finish(self) -> list[Seen]:
        """Return every message that is there; raises where a broker could not be read whole."""
        self._stop.set()
        self._thread.join(FINISH_WITHIN_S)
        if self._failure is not None:
            raise self._failure
        if self._thread.is_alive():
            raise TimeoutError(f"a broker was not read to its end in {FINISH_WITHIN_S:.0f} s")
        return self.seen

    def count(self, route: str, *, is_dead: bool) -> int:
        """Return how many envelopes of a route have arrived so far, copies not counted."""
        seen = tuple(self.seen)
        return len({each.arrived.id for each in seen if each[:2] == (route, is_dead)})


def read_kafka(
    bootstrap: str,
    topics: Mapping[str, bool],
    stop: threading.Event,
    note: Callable[[Seen], None],
) -> None:
    """Note all records of topics from offset 0 on; `topics` tells which hold dead letters."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    places = [
        TopicPartition(topic, number)
        for topic in topics
        for number in consumer.partitions_for_topic(topic)
    ]
    consumer.assign(places)
    while not stop.is_set() or _is_behind(consumer, places):
        for records in consumer.poll(timeout_ms=int(IDLE_S * 1000)).values():
            for record in records:
                note(_from_kafka(record, is_dead=topics[record.topic]))
    consumer.close()


def _is_behind(consumer: Any, places: list[Any]) -> bool:
    ends = consumer.end_offsets(places)
    return any(consumer.position(place) < ends[place] for place in places)


def _from_kafka(record: Any, *, is_dead: bool) -> Seen:
    headers = tuple(record.headers)
    ours = {name: value.decode() for name, value in headers if name.startswith("x-")}
    print_of = fingerprint(record.value, record.key, headers)
    # The topic has LogAppendTime: this is the broker's own word on when it came.
    arrived = Arrived(ours["x-message-id"], record.timestamp, print_of)
    return Seen(ours["x-route"], is_dead, arrived)


def read_rabbitmq(
    url: str, queue: str, stop: threading.Event, note: Callable[[Seen], None]
) -> None:
    """Note all messages of a queue; each is noted before it is acked, so none can be missed."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=100)
    for method, properties, body in channel.consume(queue, inactivity_timeout=IDLE_S):
        if method is not None:
            note(_from_rabbitmq(properties, body))
            channel.basic_ack(method.delivery_tag)
        elif stop.is_set() and _is_empty(channel, queue):
            break
    connection.close()


def _is_empty(channel: Any, queue: str) -> bool:
    return bool(channel.queue_declare(queue, passive=True).method.message_count == 0)


def _from_rabbitmq(properties: Any, body: bytes) -> Seen:
    now_ms = int(time.time() * 1000)
    headers = tuple((properties.headers or {}).items())
    arrived = Arrived(properties.message_id, now_ms, fingerprint(body, None, headers))
    return Seen(str(dict(headers)["x-route"]), False, arrived)
