"""Programs that post to an intake: plain pika and kafka-python, every message in the history.

What a broker confirmed has to come; it is due when its `x-deliver-at` says. Bad messages are in no
history: they are counted where the intake sends them.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pika
import redis
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from duebridge.audit import fingerprint
from duebridge.store.keys import intake_key
from tests.faults.servers.brokers import KafkaSide, RabbitSide
from tests.support.model.histories import Historian, HistoryEvent, Phase, Subject, now_ms
from tests.support.servers import wait_until

INTAKE = "intake"
GROUP = "faults"
PARTITIONS = 4
Message: TypeAlias = tuple[Any, str, bytes]  # headers, id, body


class Posted(NamedTuple):
    """A message as a program has it."""

    id: str
    body: bytes
    due_ms: int


def messages(word: str, count: int, from_s: float, over_s: float) -> list[Posted]:
    """Return so many, due one after the other, from `from_s` from now on, within `over_s`."""
    first_ms = now_ms() + int(from_s * 1000)
    return [
        Posted(
            f"{word}-{number:06}",
            b"%d " % number + random.randbytes(60),
            first_ms + int(over_s * 1000 * number / count),
        )
        for number in range(count)
    ]


class RabbitPost:
    """An intake's queue, its dead-letter queue, and a program that publishes to the first."""

    kind = "quorum"
    ids = "posted"  # as every id begins

    def __init__(self, side: RabbitSide, home: Path) -> None:
        self._side = side
        self.queue, self.letters = f"{side.name}-later", f"{side.name}-refused"
        self.source = {"broker": "side", "queue": self.queue}
        self.settings: dict[str, str] = {}  # more, of the intake
        self.dead_letter = {"broker": "side", "exchange": "", "routing_key": self.letters}
        self._history = Historian(home, "program")
        side.declare_queue(self.queue, self.kind)

    def make_letters(self) -> None:
        """Make the dead-letter target."""
        self._side.declare_queue(self.letters)

    def post(self, good: Sequence[Posted], bad: int = 0) -> None:
        """Publish good and bad ones by turns; return once the broker has confirmed all."""
        good = self._named(good)
        self._history.write(_invoked(each, None) for each in good)
        given = [({"x-deliver-at": each.due_ms}, each.id, each.body) for each in good]
        with self._side.connected() as connection:
            self._publish(connection.channel(), _mixed(given, bad))
        self._history.write(map(_confirmed, good))

    def _named(self, good: Sequence[Posted]) -> Sequence[Posted]:
        return good

    def _publish(self, channel: Any, given: Iterator[Message]) -> None:
        channel.tx_select()
        for number, each in enumerate(given):
            self._send(channel, *each)
            if number % 1000 == 999:
                channel.tx_commit()
        channel.tx_commit()

    def _send(self, channel: Any, headers: dict[str, Any], name: str, body: bytes) -> None:
        properties = pika.BasicProperties(headers=headers, message_id=name, delivery_mode=2)
        channel.basic_publish("", self.queue, body, properties)

    def left(self) -> int:
        """Return how many messages the intake has not taken yet."""
        return self._count(self.queue)

    def refused(self) -> int:
        """Return how many dead letters there are."""
        return self._count(self.letters)

    def _count(self, queue: str) -> int:
        with self._side.connected() as connection:
            declared = connection.channel().queue_declare(queue, passive=True)
            return int(declared.method.message_count)

    def close(self) -> None:
        """Delete both queues."""
        self._history.close()
        with self._side.connected() as connection:
            for queue in (self.queue, self.letters):
                connection.channel().queue_delete(queue)


class StreamPost(RabbitPost):
    """An intake's stream, which it reads by offset and never empties; of good messages alone."""

    kind = "stream"

    def __init__(self, side: RabbitSide, home: Path, store: dict[str, str]) -> None:
        super().__init__(side, home)
        self.ids = f"{self.source['broker']}:{self.queue}:"  # and the offset
        self._store, self._key = store["url"], intake_key(store["namespace"], INTAKE)
        self._posted = 0

    def _named(self, good: Sequence[Posted]) -> Sequence[Posted]:
        numbered = enumerate(good, self._posted)
        return [each._replace(id=f"{self.ids}{offset}") for offset, each in numbered]

    def _publish(self, channel: Any, given: Iterator[Message]) -> None:
        """Publish without transactions, which a stream has not; its length is the confirm."""
        for each in given:
            self._send(channel, *each)
            self._posted += 1
        wait_until(lambda: self._count(self.queue) == self._posted, "the stream to have them all")

    def left(self) -> int:
        """Return how many messages are behind the position that the intake keeps in the store."""
        with redis.Redis.from_url(self._store) as client:
            kept = client.hget(self._key, self.ids.rstrip(":"))
        return self._posted - (int(kept) + 1 if kept is not None else 0)


class KafkaPost:
    """An intake's topic, its dead-letter topic, and a program that sends to the first."""

    ids = "posted"

    def __init__(self, side: KafkaSide, home: Path) -> None:
        self._side = side
        self.topic, self._letters = f"{side.topic}-later", f"{side.topic}-refused"
        self.source = {"broker": "side", "topic": self.topic, "group": GROUP}
        self.settings = {"on_conflict": "replace"}  # the key is the id, which a program knows
        self.dead_letter = {"broker": "side", "topic": self._letters}
        self._history = Historian(home, "program")
        self._make(self.topic, PARTITIONS)

    def make_letters(self) -> None:
        """Make the dead-letter target."""
        self._make(self._letters, 1)

    def _make(self, topic: str, partitions: int) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1}
        with self._side.admin() as admin:
            admin.create_topics({topic: wanted})

    def post(self, good: Sequence[Posted], bad: int = 0) -> None:
        """Send good and bad ones by turns; return once the broker has confirmed all."""
        self._history.write(_invoked(each, each.id.encode()) for each in good)
        given = [([("x-deliver-at", b"%d" % each.due_ms)], each.id, each.body) for each in good]
        with closing(KafkaProducer(bootstrap_servers=self._side.bootstrap, acks="all")) as producer:
            sent = [
                producer.send(self.topic, body, key=name.encode(), headers=headers)
                for headers, name, body in _mixed(given, bad)
            ]
            for each in sent:
                each.get(30)
        self._history.write(map(_confirmed, good))

    def left(self) -> int:
        """Return how many records the group has not committed yet."""
        options = {"group_id": GROUP, "enable_auto_commit": False}
        with closing(KafkaConsumer(bootstrap_servers=self._side.bootstrap, **options)) as consumer:
            places = [TopicPartition(self.topic, each) for each in range(PARTITIONS)]
            ends = consumer.end_offsets(places)
            return sum(ends[place] - (consumer.committed(place) or 0) for place in places)

    def refused(self) -> int:
        """Return how many dead letters there are."""
        with closing(KafkaConsumer(bootstrap_servers=self._side.bootstrap)) as consumer:
            place = TopicPartition(self._letters, 0)
            return int(consumer.end_offsets([place])[place])

    def close(self) -> None:
        """Topics stay: they go with the run's broker."""
        self._history.close()


Post: TypeAlias = RabbitPost | StreamPost | KafkaPost
OpenPost: TypeAlias = Callable[[Any, Path, dict[str, str]], Post]


def open_post(side: Any, home: Path, store: dict[str, str]) -> Post:
    """Return the program for a side's kind of broker."""
    return KafkaPost(side, home) if isinstance(side, KafkaSide) else RabbitPost(side, home)


def _mixed(good: Sequence[Message], bad: int) -> Iterator[Message]:
    """Yield the good ones, and bad ones evenly between them."""
    made = 0
    for number, each in enumerate(good, 1):
        yield each
        for _ in range(bad * number // len(good) - made):
            made += 1
            headers = {"x-delay": "soon"} if isinstance(each[0], dict) else [("x-delay", b"soon")]
            yield headers, f"bad-{made:06}", b"bad"


def _invoked(posted: Posted, key: bytes | None) -> HistoryEvent:
    print_of = fingerprint(posted.body, key, ())
    return HistoryEvent(now_ms(), Subject.SCHEDULE, Phase.INVOKE, posted.id, fingerprint=print_of)


def _confirmed(posted: Posted) -> HistoryEvent:
    return HistoryEvent(now_ms(), Subject.SCHEDULE, Phase.OK, posted.id, posted.due_ms, "accepted")
