"""A group's member with librdkafka (confluent-kafka): `client: librdkafka`."""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from duebridge.errors import BridgeError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Arrival
from duebridge_connectors.kafka.librdkafka.client import ConnectionErrors, building_client
from duebridge_connectors.kafka.login import Login
from duebridge_connectors.kafka.source.librdkafka.errors import (
    commit_failure,
    failure_at,
    failure_by,
)
from duebridge_connectors.kafka.source.librdkafka.headers import read_headers
from duebridge_connectors.kafka.source.librdkafka.offsets import BEGINNING, StatedOffsets
from duebridge_connectors.kafka.source.logs import CommittedOffset, Logs
from duebridge_connectors.kafka.source.standstill import StillPartitions

CLOSE_S = 3.0
COMMITTED_S = 5.0
ASK_S = 10.0
LOOK_S = 1.0  # between two looks at which partitions stand still
ENDS_S = 5.0  # between two questions for the logs' ends while nothing is fetched
WATERMARKS_S = 1.0  # for such a question
# librdkafka writes a UUID in plain base64; Kafka, and so the other client, in that of URLs.
AS_KAFKA_WRITES_IT = str.maketrans("+/", "-_", "=")
NULL_IDS = frozenset({"AAAAAAAAAAAAAAAAAAAAAA", ""})  # of a broker older than topic ids

log = logging.getLogger(__name__)


class LibrdkafkaConsumer:
    """A `Consumer`; the constructor does not wait for a connection."""

    def __init__(
        self, common: Mapping[str, object], group: Mapping[str, object], login: Login, topic: str
    ) -> None:
        """Build the clients. Raises `BrokerUnavailable` and `ConfigError`."""
        self._topic = topic
        self._errors = ConnectionErrors()
        self._logs: Logs | None = None
        self._is_holding = False
        self._asked_ends_at = 0.0
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._offsets = StatedOffsets(topic, self._known_end)
        self._still = StillPartitions(topic)
        self._looked_at = 0.0
        self._failure: BridgeError | None = None  # for the next `take`
        told: dict[str, Any] = {**common, "error_cb": self._errors.note, "logger": log}
        with building_client(common.get("oauth_cb")):
            self._admin: Any = AdminClient(told)
            self._consumer: Any = Consumer({**told, **group})
        if (found := login.current()) is not None:
            self._consumer.set_sasl_credentials(*found)
            self._admin.set_sasl_credentials(*found)

    def ask_topic(self) -> "TopicQuestion":
        """Ask for the topic's id; see `Consumer`."""
        found = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=ASK_S)
        return TopicQuestion(self._topic, found[self._topic], self._errors)

    def join(self, logs: Logs) -> None:
        """Become a member; see `Consumer`."""
        self._logs = logs
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )

    def take(self, wait_s: float, most: int) -> list[Arrival]:
        """Return records; see `Consumer`."""
        if self._failure is not None:
            raise self._failure
        with _translated():
            self._resume()
            most = max(most, 2)  # what follows a refused record comes with it
            found = self._consumer.consume(most, 0)
            if not found:
                # A batch would wait for its last message.
                found = self._consumer.consume(1, wait_s)
                if found:
                    found += self._consumer.consume(most - 1, 0)
            arrivals = self._arrivals(found, was_cut=len(found) >= most)
            self._note_still()
            return arrivals

    def hold(self) -> None:
        """Poll with all partitions paused; see `Consumer`."""
        with _translated():
            if not self._is_holding:
                self._is_holding = True
                self._consumer.pause(self._consumer.assignment())
            found = self._consumer.consume(1, 0)
            if found and found[0].error() is None:  # paused too late: read it again
                self._offsets.overtake(found[0].partition())
            self._refresh_ends()

    def commit(self, positions: Mapping[int, CommittedOffset]) -> None:
        """Commit; see `Consumer`."""
        offsets = [
            TopicPartition(self._topic, part, at.offset, at.topic_id, at.epoch)
            for part, at in positions.items()
        ]
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise commit_failure(error.args[0]) from error
        for answer in answers:
            if answer.error is not None:
                raise commit_failure(answer.error)

    def lag(self) -> int | None:
        """Return the number of waiting records; see `GroupConsumer`."""
        if self._logs is None or not self._logs.was_assigned:
            return None
        try:
            return self._behind(self._logs.owned)
        except (KafkaException, RuntimeError):  # closed meanwhile
            return None

    def close(self) -> None:
        """Leave the group; see `Consumer`."""
        thread = threading.Thread(target=self._close, name="librdkafka-close", daemon=True)
        thread.start()
        thread.join(CLOSE_S)

    def _close(self) -> None:
        with suppress(Exception):
            self._consumer.close()
        self._admin = None  # dropping the last reference joins librdkafka's threads

    def _behind(self, parts: Iterable[int]) -> int | None:
        behind = 0
        for part in parts:
            at = TopicPartition(self._topic, part)
            _, high = self._consumer.get_watermark_offsets(at, cached=True)
            end, start = max(high, self._ends.get(part, -1)), self._place(part)
            if end < 0 or start < 0:
                return None
            behind += max(0, end - start)
        return behind

    def _place(self, part: int) -> int:
        """Return where a partition goes on.

        librdkafka's own position is also behind what a transaction left in the log; it may be a
        false one after a refused record.
        """
        after = max(self._offsets.after(part), self._starts.get(part, -1))
        if self._offsets.is_misled(part):
            return after
        (at,) = self._consumer.position([TopicPartition(self._topic, part)])
        return max(after, int(at.offset))

    def _arrivals(self, found: list[Any], *, was_cut: bool) -> list[Arrival]:
        owned = self._logs.owned if self._logs is not None else {}
        arrivals: list[Arrival] = []
        read = read_headers(found)
        for number, (each, headers) in enumerate(zip(found, read.headers, strict=True)):
            if (error := each.error()) is not None:
                self._failure = failure_at(error, each)
                if self._failure is not None:  # the rest comes again, after the next connect
                    break
            elif (log_ := owned.get(each.partition())) is not None:
                epoch, at = each.leader_epoch(), each.timestamp()[1]
                epoch = -1 if epoch is None else epoch
                content = at, each.key(), each.value()
                if (judged := self._offsets.offset_of(log_.part, each.offset(), *content)) is None:
                    continue
                said = judged[1] or read.unreadable.get(number, "")
                arrivals.append(log_.arrival(epoch, judged[0], *content, headers, said))
        self._reread(was_cut=was_cut)
        if self._failure is not None and not arrivals:
            raise self._failure
        return arrivals

    def _on_assign(self, consumer: Any, parts: list[Any]) -> None:
        """Own partitions, from where the group stopped; raises what `consume` then raises."""
        logs = self._logs
        if logs is None or not parts:
            consumer.incremental_assign(parts)
            return
        starts = [self._start(logs, each) for each in consumer.committed(parts, COMMITTED_S)]
        logs.begin(each.partition for each in parts)
        self._note_ends(starts)
        self._offsets.begin((each.partition, self._known_start(each)) for each in starts)
        self._still.begin(each.partition for each in parts)
        consumer.incremental_assign(starts)
        if self._is_holding:
            consumer.pause(parts)

    def _start(self, logs: Logs, found: Any) -> Any:
        if found.error is not None:
            raise KafkaException(found.error)
        committed = None
        if found.offset >= 0:
            epoch = -1 if found.leader_epoch is None else found.leader_epoch
            committed = CommittedOffset(found.offset, epoch, found.metadata or "")
        start = logs.start_of(committed)
        if start is None:
            return TopicPartition(self._topic, found.partition, OFFSET_BEGINNING)
        return TopicPartition(self._topic, found.partition, start.offset, "", start.epoch)

    def _on_revoke(self, consumer: Any, parts: list[Any]) -> None:
        if self._logs is not None:
            self._logs.end(each.partition for each in parts)
        consumer.incremental_unassign(parts)

    def _resume(self) -> None:
        if self._is_holding:
            self._is_holding = False
            self._consumer.resume(self._consumer.assignment())
            self._still.forget()
            self._offsets.resume()
            self._reread()

    def _reread(self, *, was_cut: bool = True) -> None:
        for part in self._offsets.unread(was_cut=was_cut):
            if self._logs is not None and part in self._logs.owned:
                at = TopicPartition(self._topic, part, self._offsets.after(part))
                self._consumer.seek(at)

    def _note_still(self) -> None:
        now = monotonic()
        if self._logs is None or now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        for part in self._logs.owned:
            with suppress(KafkaException):
                self._still.note(part, self._place(part), self._behind([part]) or 0)

    def _known_end(self, part: int) -> int:
        at = TopicPartition(self._topic, part)
        with suppress(KafkaException):
            end = int(self._consumer.get_watermark_offsets(at, cached=True)[1])
            if end < 0:  # so it is after a fetch beyond the end, where a false offset leads
                end = int(self._consumer.get_watermark_offsets(at, WATERMARKS_S)[1])
            return end
        return -1

    def _known_start(self, start: Any) -> int:
        return max(int(start.offset), self._starts.get(start.partition, BEGINNING))

    def _refresh_ends(self) -> None:
        now = monotonic()
        if now - self._asked_ends_at >= ENDS_S:
            self._asked_ends_at = now
            self._note_ends(self._consumer.assignment())

    def _note_ends(self, parts: list[Any]) -> None:
        """Ask where logs begin and end: what is not fetched has no known end."""
        for part in parts:
            with suppress(KafkaException):
                low, high = self._consumer.get_watermark_offsets(part, WATERMARKS_S)
                self._ends[part.partition] = high
                self._starts[part.partition] = max(part.offset, low)


class TopicQuestion:
    """A description of one topic; see `Question`."""

    def __init__(self, topic: str, future: "Future[Any]", errors: ConnectionErrors) -> None:
        self._topic, self._future, self._errors = topic, future, errors

    def is_answered(self) -> bool:
        """Return whether there is an answer; see `Question`."""
        return self._future.done()

    def answer(self, within_s: float) -> str:
        """Return the topic's id; see `Question`."""
        try:
            found = self._future.result(within_s)
        except TimeoutError as error:
            said = self._errors.message or f"no answer within {within_s:.1f} s"
            raise BrokerUnavailable(said) from error
        except KafkaException as error:
            code = error.args[0].code()
            said = f"topic {self._topic}" if code >= 0 else self._errors.message
            raise failure_by(error.args[0], said) from error
        topic_id = str(found.topic_id)
        return "" if topic_id in NULL_IDS else topic_id.translate(AS_KAFKA_WRITES_IT)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except BridgeError:
        raise
    except KafkaException as error:
        raise failure_by(error.args[0]) from error
    except Exception as error:  # of the binding
        raise BrokerUnavailable(f"{type(error).__name__}: {error}") from error
