"""A configuration with a namespace of its own, and the store and topics behind it."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession

from duebridge.config.load import load_config
from duebridge.envelope import Envelope, Target
from duebridge.producer import Producer
from duebridge.store.delay_store import DelayStore
from duebridge.store.journal import Journal
from duebridge.store.keys import Shard
from duebridge.store.routing import shard_number
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.wire.record import Record
from duebridge_connectors.spark.source.dataframes import write_envelopes
from duebridge_connectors.spark.source.loader import Summary
from tests.support.command import ENVIRONMENT, FORKS, Done
from tests.support.desk import remembering
from tests.support.kafka.kafka_broker import KafkaBroker
from tests.support.spark.launch import JAVA_SAYS, OF_COMMANDS

LATER_MS = 1_000 * int((datetime.now(UTC) + timedelta(days=30)).timestamp())
COMMAND_WITHIN_S = 240.0  # a session of its own, on a busy machine
SHARDS = {"split": 4, "cold": 2}
CONFIG = """
version: 1
store: {{url: "{url}", namespace: {namespace}}}
brokers:
  kafka: {{type: kafka, bootstrap_servers: ["{bootstrap}"]}}
  rabbit: {{type: rabbitmq, url: "amqp://localhost/"}}
routes:
  plain: {{target: {{broker: kafka, topic: plain}}, max_body: 1KiB, max_delay: 365d}}
  split: {{target: {{broker: kafka, topic: split}}, shards: 4}}
  amqp:
    target: {{broker: rabbit, exchange: "", routing_key: amqp}}
    allow_targets: [{{broker: rabbit, exchange: x, routing_key: "*"}}]
  cold:
    target: {{broker: kafka, topic: cold}}
    shards: 2
    cold_tier: {{path: "{home}/cold", horizon: 7d}}
  frozen:
    target: {{broker: kafka, topic: frozen}}
    cold_tier: {{path: "{home}/cold", horizon: 7d}}
  open:
    target: {{broker: kafka, topic: open}}
    allow_targets: [{{broker: kafka, topic: "open-*"}}]
"""


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


class World:
    """A configuration with a namespace of its own, and what the store has in it."""

    def __init__(self, home: Path, url: str, session: Callable[[], SparkSession]) -> None:
        """Start no Spark session before a test asks for `spark`."""
        self.home = home
        self.url = url
        self._session = session
        self.namespace = f"spark-{secrets.token_hex(6)}"
        self.config = str(home / "duebridge.yaml")
        self.connection: Connection = open_connection(url)
        self.use(url)

    @property
    def spark(self) -> SparkSession:
        return self._session()

    def use(self, url: str, bootstrap: str = "localhost:9092") -> None:
        """Reach the store by this url from now on, and Kafka by these servers."""
        text = CONFIG.format(url=url, namespace=self.namespace, home=self.home, bootstrap=bootstrap)
        Path(self.config).write_text(text)

    def command(self, *words: str, **more: str) -> Done:
        """Run `duebridge` to its end; `more` are variables of its environment."""
        given = ["--config", self.config, *words]
        env = ENVIRONMENT | OF_COMMANDS | more
        code, out, err = FORKS.run(given, b"", self.home, env, COMMAND_WITHIN_S)
        return Done(code, out.decode(), err.decode().removeprefix(JAVA_SAYS))

    def options(self, route: str, **more: object) -> dict[str, Any]:
        return {"config": self.config, "route": route, **more}

    def write(self, frame: DataFrame, route: str, **more: Any) -> Summary:
        return write_envelopes(frame, **self.options(route, **more))

    def read(self, **options: Any) -> DataFrame:
        reader = self.spark.read.format("duebridge").option("config", self.config)
        return reader.options(**options).load()

    def store(self, route: str, number: int = 0, **options: Any) -> DelayStore:
        return DelayStore(self.connection, Shard(self.namespace, route, number), **options)

    def producer(self) -> Producer:
        return Producer(load_config(self.config), self.connection)

    def schedule(self, route: str, *ids: str, **given: Any) -> None:
        """Store envelopes at once, due in a month unless told otherwise."""
        given = given if "delay" in given else {"at": LATER_MS} | given
        envelopes = [Envelope.new(f"body of {name}".encode(), id=name, **given) for name in ids]
        receipts = self.producer().schedule_many(route, envelopes)
        assert {receipt.status for receipt in receipts} <= {"accepted"}

    def accept(self, route: str, *ids: str) -> None:
        """Schedule, each in a journal entry of its own."""
        for name in ids:
            self.schedule(route, name)

    def cut(self, route: str, *sequences: int) -> None:
        """Cut journal entries, as the cap would."""
        client: Any = self.connection.client
        names = [f"{sequence}-0" for sequence in sequences]
        assert client.xdel(f"{self.store(route).shard.tag}:journal", *names) == len(sequences)

    def fail_over(self, route: str, *lost: int) -> None:
        """Let a shard lose its newest journal entries, by number, and be on another server."""
        client: Any = self.connection.client
        meta = self.store(route).shard.key("meta")
        if lost:
            self.cut(route, *lost)
            client.hset(meta, "journal_sequence", min(lost) - 1)
        client.hset(meta, "master", "0" * 40)

    def due(self, route: str, name: str) -> int | None:
        known = self.producer().get(route, name)
        return known and known.due_at_ms

    def ids(self, route: str, state: str = "pending") -> set[str]:
        """The ids of a route's state, at most 100,000 of each shard."""
        client: Any = self.connection.client
        keys = self._keys(route, state)
        return {name.decode() for key in keys for name in client.zrange(key, 0, 100_000)}

    def count(self, route: str, state: str = "pending") -> int:
        """How many ids `ids` would have: for who asks again and again."""
        client: Any = self.connection.client
        return sum(client.zcard(key) for key in self._keys(route, state))

    def _keys(self, route: str, state: str) -> list[str]:
        return [f"{self.store(route, n).shard.tag}:{state}" for n in range(SHARDS.get(route, 1))]

    def journalled(self, route: str) -> list[tuple[str, str]]:
        """The kind of each entry of a route's first shard, and in whose name it was."""
        journal = Journal(self.connection, Shard(self.namespace, route, 0))
        return [(entry.kind, entry.actor) for entry in journal.read(0, journal.last())]

    def record(self, route: str, name: str) -> tuple[int, Record]:
        """The number of an id's shard, and its record."""
        number = shard_number(name, SHARDS.get(route, 1))
        entry = self.store(route, number).get(name)
        assert entry is not None
        assert entry.record is not None
        return number, entry.record

    def deliver(self, route: str, count: int) -> set[str]:
        """Deliver what is due, as a worker would, and return its ids."""
        store = self.store(route)
        store.promote()
        claim = store.claim(count, 30_000)
        assert store.ack(remembering(claim)).stale == []
        return set(claim.ids)

    def delete(self) -> None:
        client: Any = self.connection.client
        for key in client.scan_iter(f"{{{self.namespace}*", count=1000):
            client.delete(key)
        self.connection.close()


RECORDED_AT_MS = 1_700_000_000_000
FOR_GOOD = {"retention.ms": "-1"}  # what is recorded that long ago would be cut at any moment


class Sent(NamedTuple):
    """What a producer sends."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None


class Topics:
    """The broker, and the topics of the test."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self.bootstrap = broker.bootstrap

    def make(self, partitions: int = 2, configs: Mapping[str, str] = FOR_GOOD) -> str:
        target = self._broker.missing_target()
        self._broker.create(target, partitions, configs)
        return str(target.topic)

    def make_anew(self, name: str, partitions: int = 2) -> None:
        """Delete a topic, and make one of the same name."""
        target = Target("kafka", topic=name)
        self._broker.delete(target)
        self._broker.create(target, partitions, FOR_GOOD)

    def fill(self, name: str, records: Iterable[Sent]) -> None:
        """Send all of them, as of RECORDED_AT_MS."""
        with closing(KafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=5)) as producer:
            for value, key, headers, partition in records:
                producer.send(name, value, key, list(headers), partition, RECORDED_AT_MS)
            producer.flush()

    def abort(self, name: str, *records: Sent) -> None:
        """Send these in a transaction, and abort it."""
        given = {"bootstrap_servers": self.bootstrap, "transactional_id": secrets.token_hex(6)}
        with closing(KafkaProducer(**given)) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for value, key, headers, partition in records:
                producer.send(name, value, key, list(headers), partition, RECORDED_AT_MS)
            producer.flush()
            producer.abort_transaction()
