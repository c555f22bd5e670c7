"""The brokers, what the demo makes on them and takes away again, and independent consumers.

The consumers know the brokers and nothing of duebridge but its headers. They note every message
they are given, copies included, and end only at the end.
"""

import json
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pika
from duebridge.audit import ArrivedEnvelope, fingerprint
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError
from rich.console import Console

from departures import (
    HELD_ROUTE,
    KAFKA_INTAKE,
    KAFKA_ROUTE,
    MISSING_ROUTE,
    RABBITMQ_INTAKE,
    RABBITMQ_ROUTE,
)
from ledger import Seen
from programs import Program

ROOT = Path(__file__).resolve().parents[2]
SERVICES = [sys.executable, str(ROOT / "deploy" / "local" / "services.py")]
PARTITIONS = 3
HELD, BROKEN, INTERRUPTED = 0, 1, 130
FINISH_WITHIN_S = 30.0
IDLE_S = 0.2

Note = Callable[[Seen], None]


def performed(play: Callable[[Console, ExitStack], bool], at_the_end: str) -> int:
    """Run a demo; returns 0 where the guarantee held, 1 where it did not, 130 after Ctrl-C.

    What it puts on the stack is taken away, whatever happens, and no second Ctrl-C disturbs that.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(highlight=False)
    try:
        with ExitStack() as stack:
            try:
                return HELD if play(console, stack) else BROKEN
            finally:
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)
                console.print(at_the_end)
    except KeyboardInterrupt:
        return INTERRUPTED
    except subprocess.CalledProcessError:
        console.print("What the demo needs could not be had; why is said above.")
        return BROKEN


@contextmanager
def local_brokers(*names: str) -> Iterator[list[str]]:
    """Give the addresses of brokers that answer; those started here for us alone are stopped again.

    Raises `CalledProcessError` where they cannot be started; why was printed.
    """
    ours = ["--only", ",".join(names), "--owner", f"demo-{secrets.token_hex(3)}"]
    try:
        subprocess.run([*SERVICES, "up", *ours], check=True)
        running = json.loads((ROOT / ".services" / "services.json").read_text())
        yield [running[name].get("bootstrap") or running[name]["url"] for name in names]
    finally:
        subprocess.run([*SERVICES, "down", *ours], check=False)


class Reader:
    """Reads one broker in a thread of its own, from now until `finish`."""

    def __init__(self, read: Callable[[threading.Event, Note], None]) -> None:
        self._seen: list[Seen] = []
        self._stop = threading.Event()
        pool = ThreadPoolExecutor(1)
        self._reading = pool.submit(read, self._stop, self._seen.append)
        pool.shutdown(wait=False)

    def finish(self) -> list[Seen]:
        """Return every message that is there; raises where a broker could not be read whole."""
        self._stop.set()
        self._reading.result(FINISH_WITHIN_S)
        return self._seen

    def count(self, route: str, *, is_dead: bool) -> int:
        """Return how many envelopes of a route have arrived so far, copies not counted."""
        seen = tuple(self._seen)
        return len({each.arrived.id for each in seen if each[:2] == (route, is_dead)})


def read_kafka(
    bootstrap: str, topics: Mapping[str, bool], stop: threading.Event, note: Note
) -> None:
    """Note all records of topics from offset 0 on; `topics` tells which hold dead letters."""
    given = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, **given)) as consumer:
        places = [TopicPartition(topic, each) for topic in topics for each in range(PARTITIONS)]
        consumer.assign(places)
        while not stop.is_set() or _is_behind(consumer, places):
            for records in consumer.poll(timeout_ms=int(IDLE_S * 1000)).values():
                for record in records:
                    note(_from_kafka(record, is_dead=topics[record.topic]))


def _is_behind(consumer: Any, places: list[Any]) -> bool:
    ends = consumer.end_offsets(places)
    return any(consumer.position(place) < ends[place] for place in places)


def _from_kafka(record: Any, *, is_dead: bool) -> Seen:
    headers = tuple(record.headers)
    ours = {name: value.decode() for name, value in headers if name.startswith("x-")}
    print_of = fingerprint(record.value, record.key, headers)
    # The topic has LogAppendTime: this is the broker's own word on when it came.
    arrived = ArrivedEnvelope(ours["x-message-id"], record.timestamp, print_of)
    return Seen(ours["x-route"], is_dead, arrived)


def read_rabbitmq(url: str, queue: str, stop: threading.Event, note: Note) -> None:
    """Note all messages of a queue; each is noted before it is acked, so none can be missed."""
    with rabbitmq_channel(url) as channel:
        channel.basic_qos(prefetch_count=100)
        for method, properties, body in channel.consume(queue, inactivity_timeout=IDLE_S):
            if method is not None:
                note(_from_rabbitmq(properties, body))
                channel.basic_ack(method.delivery_tag)
            elif stop.is_set() and not channel.queue_declare(queue, True).method.message_count:
                break


def _from_rabbitmq(properties: Any, body: bytes) -> Seen:
    now_ms = int(time.time() * 1000)
    headers = tuple((properties.headers or {}).items())
    arrived = ArrivedEnvelope(properties.message_id, now_ms, fingerprint(body, None, headers))
    return Seen(str(dict(headers)["x-route"]), False, arrived)


@dataclass(frozen=True, slots=True)
class Stage:
    """Both brokers, ready to deliver to, each with a reader."""

    bootstrap: str
    url: str
    name: str
    readers: tuple[Reader, ...]

    def config(self, home: str) -> str:
        """Return the configuration; the store lies in `home`."""
        # The lease is short so that another worker soon delivers what the killed one held.
        return f"""\
version: 1
store: {{url: "embedded:{home}/store"}}
brokers:
  events: {{type: kafka, bootstrap_servers: ["{self.bootstrap}"]}}
  desk:   {{type: rabbitmq, url: "{self.url}"}}
worker: {{publish_deadline: 2s, drain: 10s}}
defaults: {{lease: 4s}}
routes:
  {KAFKA_ROUTE}:
    target: {{broker: events, topic: {self.name}}}
    dead_letter: {{broker: events, topic: {self.name}-dead}}
  {RABBITMQ_ROUTE}:
    target: {{broker: desk, exchange: {self.name}, routing_key: boarding}}
    dead_letter: {{broker: events, topic: {self.name}-dead}}
  {MISSING_ROUTE}:
    target: {{broker: events, topic: {self.name}-nobody-made-it}}
    dead_letter: {{broker: events, topic: {self.name}-dead}}
    on_target_error: {{hold: 0s}}
  {HELD_ROUTE}:
    target: {{broker: events, topic: {self.name}-gates}}
    dead_letter: {{broker: events, topic: {self.name}-dead}}
    on_target_error: {{hold: 1d}}
  {KAFKA_INTAKE}:
    target: {{broker: events, topic: {self.name}}}
    dead_letter: {{broker: events, topic: {self.name}-dead}}
  {RABBITMQ_INTAKE}:
    target: {{broker: desk, exchange: {self.name}, routing_key: boarding}}
    dead_letter: {{broker: events, topic: {self.name}-dead}}
intakes:
  {KAFKA_INTAKE}:
    source: {{broker: events, topic: {self.name}-later, group: {self.name}}}
    route: {KAFKA_INTAKE}
    on_conflict: replace
  {RABBITMQ_INTAKE}:
    source: {{broker: desk, queue: {self.name}-later}}
    route: {RABBITMQ_INTAKE}
"""

    def programs(self) -> dict[str, Program]:
        """Start the programs that send through the intakes, by the route of their calls."""
        later = f"{self.name}-later"
        return {
            KAFKA_INTAKE: Program("kafka_program.py", self.bootstrap, later),
            RABBITMQ_INTAKE: Program("rabbitmq_program.py", self.url, later),
        }

    def count(self, route: str, *, is_dead: bool) -> int:
        """Return how many envelopes of a route were read back so far."""
        return sum(reader.count(route, is_dead=is_dead) for reader in self.readers)

    def read_all(self) -> list[Seen]:
        """Return every message on both brokers; the readers end here."""
        return [seen for reader in self.readers for seen in reader.finish()]


@contextmanager
def opened_stage(bootstrap: str, url: str) -> Iterator[Stage]:
    """Give a stage of its own; nothing of it is left behind."""
    name = f"boarding-{secrets.token_hex(3)}"
    topics = [name, f"{name}-dead", f"{name}-later"]
    with kafka_topics(bootstrap, topics), rabbitmq_queue(url, name):
        kafka = Reader(partial(read_kafka, bootstrap, {name: False, f"{name}-dead": True}))
        rabbitmq = Reader(partial(read_rabbitmq, url, name))
        try:
            yield Stage(bootstrap, url, name, (kafka, rabbitmq))
        finally:
            for reader in (kafka, rabbitmq):
                with suppress(Exception):  # whoever needed what it read has been told
                    reader.finish()


@contextmanager
def kafka_topics(bootstrap: str, names: list[str]) -> Iterator[None]:
    """Have topics whose record time is the broker's own; deleted at the end."""
    topic = {
        "num_partitions": PARTITIONS,
        "replication_factor": 1,
        "configs": {"message.timestamp.type": "LogAppendTime"},
    }
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        try:
            admin.create_topics(dict.fromkeys(names, topic), wait_for_metadata=True)
            yield
        finally:
            with suppress(KafkaError):  # not made, when it was the making that failed
                admin.delete_topics(names)


@contextmanager
def rabbitmq_queue(url: str, name: str) -> Iterator[None]:
    """Have a quorum queue behind an exchange, and the queue of an intake; deleted at the end."""
    try:
        with rabbitmq_channel(url) as channel:
            channel.exchange_declare(name, "direct", durable=True)
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_bind(name, name, "boarding")
            quorum = {"x-queue-type": "quorum"}
            channel.queue_declare(f"{name}-later", durable=True, arguments=quorum)
        yield
    finally:
        # A connection of its own: the first one would have missed its heartbeats by now.
        with suppress(AMQPError), rabbitmq_channel(url) as channel:
            channel.queue_delete(name)
            channel.queue_delete(f"{name}-later")
            channel.exchange_delete(name)


@contextmanager
def rabbitmq_channel(url: str) -> Iterator[BlockingChannel]:
    """Give a channel on a connection of its own."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        yield connection.channel()
