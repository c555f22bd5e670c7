"""Where a log begins, what precedes what in it, a topic's id, and how soon to connect again."""

import threading
from contextlib import closing
from typing import Any

import pytest

from duebridge.errors import ConfigError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import LogPosition, SourcePlan
from duebridge_connectors.kafka.source.consumer import RecordFailed
from duebridge_connectors.kafka.source.librdkafka.offsets import StatedOffsets
from duebridge_connectors.kafka.source.logs import CommittedOffset, Logs, origin_of
from duebridge_connectors.kafka.source.reconnect_backoff import ReconnectBackoff
from duebridge_connectors.kafka.source.source import KafkaSource
from duebridge_connectors.kafka.source.standstill import (
    STILL_S,
    TRIES,
    FailedPlaces,
    StillPartitions,
)
from duebridge_connectors.kafka.source.watch import SILENCE_S, TopicRemade, TopicWatch


def arrival(logs: Logs, epoch: int, offset: int, part: int = 0, sent_at_ms: int = -1) -> Any:
    return logs.owned[part].arrival(epoch, offset, sent_at_ms, None, b"", None)


def test_record_after_a_truncation_has_a_later_place_than_what_was_cut_off() -> None:
    logs = Logs("orders", "t", "A")
    logs.begin([0])
    cut_off, instead = arrival(logs, 3, 100), arrival(logs, 5, 98)
    assert cut_off.place == LogPosition("orders/t/A/0", 3, 100)
    assert (instead.place.epoch, instead.place.offset) > (3, 100)


def test_record_of_a_topic_without_an_id_has_no_place_and_an_id() -> None:
    logs = Logs("orders", "t", "")
    logs.begin([2])
    found = arrival(logs, 0, 7, 2)
    assert (found.place, found.id, found.sent_at_ms) == (None, "orders:t:2:7:-1", 0)
    assert not found.is_id_unique  # the topic, recreated, has it too
    assert arrival(logs, 0, 7, 2, 1_700_000_000_000).is_id_unique


@pytest.mark.parametrize(
    ("committed", "start"),
    [
        (None, None),
        (CommittedOffset(7, 2, "A"), CommittedOffset(7, 2, "A")),
        (CommittedOffset(7, 2, "B"), None),  # of a topic that is no more
        (CommittedOffset(7, 2, ""), CommittedOffset(7, 2, "")),  # set by an operator
    ],
)
def test_start_is_where_the_group_stopped_in_this_life_of_the_topic(
    committed: CommittedOffset | None, start: CommittedOffset | None
) -> None:
    assert Logs("orders", "t", "A").start_of(committed) == start


def test_partition_that_came_back_is_another_log() -> None:
    logs = Logs("orders", "t", "A")
    logs.begin([0, 1])
    first, other = logs.owned[0], logs.owned[1]
    logs.end([0])
    assert not first.is_owned
    logs.begin([0])
    assert logs.owned[0] is not first
    assert (first.is_owned, logs.owned[0].is_owned, logs.owned[1] is other) == (False, True, True)


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        ([], ""),
        ([("a", b"b"), ("x-origin", None)], ""),
        ([("X-Origin", b"first"), ("x-origin", b"last"), ("kafka_original-topic", b"s")], "last"),
        ([("kafka_original-topic", b"one"), ("kafka_original-topic", b"two")], "one"),
        ([("kafka_dlt-original-topic", b"dlt"), ("kafka_original-topic", b"retry")], "retry"),
        ([("kafka_dlt-original-topic", b"dlt")], "dlt"),
    ],
)
def test_origin_is_ours_or_else_springs(
    headers: list[tuple[str, bytes | None]], origin: str
) -> None:
    assert origin_of(headers) == origin


class Answers:
    """Answers of a broker: text, or an error; None for no answer yet."""

    def __init__(self, *answers: str | Exception | None) -> None:
        self.answers = list(answers)
        self.now = 0.0

    def ask(self) -> "Answers":
        return self

    def is_answered(self) -> bool:
        return self.answers[0] is not None

    def answer(self, within_s: float) -> str:
        del within_s
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, Exception):
            raise found
        assert found is not None
        return found

    def watch(self) -> TopicWatch:
        return TopicWatch(self.ask, lambda: self.now)

    def pass_s(self, seconds: float) -> None:
        self.now += seconds


def checked(watch: TopicWatch, answers: Answers, seconds: int) -> None:
    for _ in range(seconds):
        answers.pass_s(1)
        watch.check()


def test_watch_of_the_same_topic_is_content() -> None:
    answers = Answers("A")
    checked(answers.watch(), answers, 30)


def test_watch_notices_a_topic_made_anew() -> None:
    answers = Answers("A", "A", "B")
    with pytest.raises(TopicRemade, match="A is now B"):
        checked(answers.watch(), answers, 5)


def test_watch_notices_a_missing_topic_at_once() -> None:
    answers = Answers("A", ConfigError("topic t"))
    with pytest.raises(ConfigError):
        checked(answers.watch(), answers, 3)


@pytest.mark.parametrize("answer", [None, BrokerUnavailable("a leader moves")])
def test_watch_bears_silence_for_a_while_and_then_gives_up(answer: Exception | None) -> None:
    answers = Answers("A", answer)
    watch = answers.watch()
    checked(watch, answers, int(SILENCE_S))
    with pytest.raises(BrokerUnavailable):
        checked(watch, answers, 5)


def test_partition_where_nothing_comes_though_records_wait_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    still = StillPartitions("t", lambda: now[0])
    for offset, waiting in ((7, 5), (9, 3), (9, 0), (9, 3), (9, 3), (9, 4)):
        still.note(0, offset, waiting)  # it moves, is empty, and then neither
        now[0] += STILL_S - 1
    (said,) = [each.message for each in caplog.records]
    assert said.startswith("topic t, partition 0: nothing came from offset 9 on for 58 s, though 3")
    still.forget()
    still.note(0, 9, 3)
    assert len(caplog.records) == 1


def test_partition_that_came_back_does_not_count_as_still_for_the_time_between(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    still = StillPartitions("t", lambda: now[0])
    for _ in range(2):
        still.begin([0])
        still.note(0, 9, 3)
        now[0] += STILL_S - 1
    still.note(0, 9, 3)
    assert not caplog.records
    now[0] += 1
    still.note(0, 9, 3)
    assert len(caplog.records) == 1


def test_failures_at_records_are_logged_once_each_and_raised_while_they_are_this_members(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logs, failed = Logs("orders", "t", "A"), FailedPlaces("t")
    failed.note(RecordFailed("damaged", 1, 3))
    for _ in range(TRIES):
        failed.check(logs)
        for part in (0, 1):  # they alternate
            failed.note(RecordFailed("damaged", part, 4))
        failed.note(BrokerUnavailable("no answer"))
    failed.note(RecordFailed("damaged", 1, 4))
    assert len(caplog.records) == 2
    with pytest.raises(BrokerUnavailable, match="cannot be read from offset 4 on"):
        failed.check(logs)
    logs.begin([0, 1])
    assert not failed.pass_by([arrival(logs, 0, 9, part=0), arrival(logs, 0, 3, part=1)], logs)
    with pytest.raises(BrokerUnavailable, match="partition 1: cannot be read from offset 4 on"):
        failed.check(logs)
    logs.end([1])
    failed.check(logs)
    assert failed.pass_by([], logs)
    logs.begin([1])
    assert not failed.pass_by([], logs)
    assert failed.pass_by([arrival(logs, 0, 4, part=1)], logs)
    failed.check(logs)


class Idle(Answers):
    """A client of a topic in which nothing waits; its first connections end with these errors."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__("A")
        self.failures = list(failures)

    def ask_topic(self) -> Any:
        return self

    def join(self, logs: Logs) -> None:
        logs.begin([0])

    def take(self, wait_s: float, most: int) -> list[Any]:
        if self.failures:
            raise self.failures.pop(0)
        return []

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("failure", "steady_s", "is_reset"),
    [
        (BrokerUnavailable("away"), 0.0, True),
        (BrokerUnavailable("away"), 60.0, False),  # the connection is too young to tell
        (RecordFailed("damaged", 0, 4), 0.0, False),  # nothing came from there on
    ],
)
def test_receive_of_nothing_on_a_steady_connection_resets_the_pause_after_failures(
    failure: Exception, steady_s: float, is_reset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duebridge_connectors.kafka.source.source.STEADY_S", steady_s)
    client: Any = Idle(failure)
    with closing(KafkaSource(lambda: client, SourcePlan("i", "b", {"topic": "t"}))) as source:
        with pytest.raises(BrokerUnavailable):
            source.receive(0.0)
        assert source.receive(1.0) == []
        assert (source._pace._pause_s == 0) == is_reset


def test_record_that_states_an_offset_beyond_the_end_gets_the_next_one_and_nothing_skips_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    offsets = StatedOffsets("t", lambda _: 20)
    offsets.begin([(0, 10)])
    assert offsets.offset_of(0, 10) == (10, "")
    assert offsets.offset_of(0, 20) == (11, "offset: expected one before the log's end, 20; got 20")
    assert offsets.offset_of(0, 15) is None  # librdkafka may fetch on after what it stated
    assert (offsets.after(0), offsets.unread(), offsets.unread()) == (12, {0}, set())
    offsets.resume()  # where librdkafka believes to be
    assert offsets.unread() == {0}
    assert offsets.offset_of(0, 13) == (13, "")  # read again; a gap is no fault
    offsets.resume()
    assert offsets.unread() == set()
    assert offsets.offset_of(0, 12) == (12, "")
    assert ["offset 12 came where at least 14" in each.message for each in caplog.records] == [True]


def test_record_in_order_after_a_refused_one_leaves_the_rest_to_be_read_again() -> None:
    offsets = StatedOffsets("t", lambda _: 40)
    offsets.begin([(0, 10)])
    assert offsets.offset_of(0, 50, b"false") == (10, said(40, 50))
    assert offsets.offset_of(0, 11, b"good") == (11, "")
    assert (offsets.after(0), offsets.unread()) == (12, {0})  # librdkafka may be after 50
    offsets.resume()
    assert offsets.unread() == {0}
    assert offsets.offset_of(0, 12) == (12, "")
    offsets.resume()
    assert offsets.unread() == set()


def test_refused_record_that_comes_again_is_not_refused_again_and_what_follows_it_is_taken() -> (
    None
):
    end = 40
    offsets = StatedOffsets("t", lambda _: end)
    offsets.begin([(0, 10)])
    assert offsets.offset_of(0, 50, b"false") == (10, said(40, 50))
    assert offsets.unread() == {0}
    end = 60  # the log grows past what it states
    for was_cut, after in ((True, 11), (False, 12), (False, 13)):  # a gap before it
        assert offsets.offset_of(0, 50, b"false") is None
        assert (offsets.unread(was_cut=was_cut), offsets.after(0)) == ({0}, after)
    assert offsets.offset_of(0, 50, b"false") is None
    assert offsets.offset_of(0, 70, b"another") == (13, said(60, 70))
    assert offsets.offset_of(0, 14) == (14, "")
    assert (offsets.unread(was_cut=False), offsets.after(0)) == ({0}, 15)
    assert offsets.offset_of(0, 70, b"another") is None
    assert (offsets.offset_of(0, 15), offsets.unread()) == ((15, ""), set())
    offsets.resume()  # librdkafka would after 70
    assert offsets.unread() == {0}
    offsets.begin([(0, 10)])
    assert offsets.offset_of(0, 50, b"false") == (50, "")


def said(end: int, stated: int) -> str:
    return f"offset: expected one before the log's end, {end}; got {stated}"


def test_wait_that_is_cut_short_does_not_put_the_next_attempt_off() -> None:
    backoff = ReconnectBackoff(threading.Event())
    backoff.failed(BrokerUnavailable("refused"))
    for _ in range(10):  # a source is asked more often than it may connect
        try:
            backoff.wait(0.0)
        except BrokerUnavailable as error:
            backoff.failed(error)
    backoff.wait(1.0)
