"""The brokers, and what the demo makes on them under names of its own and takes away again."""

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pika
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError
from pika.exchange_type import ExchangeType

from departures import KAFKA_ROUTE, MISSING_ROUTE, RABBITMQ_ROUTE
from ledger import Seen
from readers import Reader, read_kafka, read_rabbitmq

ROOT = Path(__file__).resolve().parents[2]
SERVICES = [sys.executable, str(ROOT / "deploy" / "local" / "services.py")]
PARTITIONS = 3


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
"""

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
    with kafka_topics(bootstrap, [name, f"{name}-dead"]), rabbitmq_queue(url, name):
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
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics(dict.fromkeys(names, topic), wait_for_metadata=True)
        yield
    finally:
        with suppress(KafkaError):  # not made, when it was the making that failed
            admin.delete_topics(names)
        admin.close()


@contextmanager
def rabbitmq_queue(url: str, name: str) -> Iterator[None]:
    """Have a durable quorum queue behind an exchange of its own; both deleted at the end."""
    try:
        with rabbitmq_channel(url) as channel:
            channel.exchange_declare(name, ExchangeType.direct, durable=True)
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_bind(name, name, "boarding")
        yield
    finally:
        # A connection of its own: the first one would have missed its heartbeats by now.
        with suppress(AMQPError), rabbitmq_channel(url) as channel:
            channel.queue_delete(name)
            channel.exchange_delete(name)


@contextmanager
def rabbitmq_channel(url: str) -> Iterator[BlockingChannel]:
    """Give a channel on a connection of its own."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection.channel()
    finally:
        connection.close()
