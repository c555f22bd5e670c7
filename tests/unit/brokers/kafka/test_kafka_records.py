"""How a record looks to Kafka: its headers, its partition, and what its errors mean."""

import inspect
from collections import Counter
from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka.partitioner.default import DefaultPartitioner

from duebridge.envelope import Headers, Properties
from duebridge.ports.publisher import Reason, Verdict
from duebridge_connectors.kafka.errors import TABLE, KafkaErrorRule, is_temporary, outcome_of
from duebridge_connectors.kafka.headers import kafka_headers
from duebridge_connectors.kafka.kafka_python import partitioner
from duebridge_connectors.kafka.kafka_python.partitioner import RUN_S, RunPartitioner
from duebridge_connectors.kafka.librdkafka.errors import (
    OWN,
    answered_refusal,
    produce_refusal,
    row_of,
)

from kafka import errors as vendor  # isort: skip


JSON = Properties(content_type="application/json")


@pytest.mark.parametrize(
    ("given", "properties", "expected"),
    [
        ((("a", b"\x00\xff"), ("b", b"")), None, [("a", b"\x00\xff"), ("b", b"")]),
        ((("a", "grüße"), ("b", "")), None, [("a", "grüße".encode()), ("b", b"")]),
        ((("a", 0), ("b", -(2**63))), None, [("a", b"0"), ("b", b"-9223372036854775808")]),
        ((("a", True), ("b", False)), None, [("a", b"true"), ("b", b"false")]),
        ((("b", "1"), ("a", 2), ("b", "1")), None, [("b", b"1"), ("a", b"2"), ("b", b"1")]),
        ((("a", "1"),), JSON, [("a", b"1"), ("content-type", b"application/json")]),
        ((("content-type", "text/plain"),), JSON, [("content-type", b"text/plain")]),
        ((("Content-Type", "text/plain"),), JSON, [("Content-Type", b"text/plain")]),
    ],
)
def test_convert_headers_gives_a_list_of_names_and_bytes_in_order(
    given: Headers, properties: Properties | None, expected: list[tuple[str, bytes]]
) -> None:
    headers = kafka_headers(given, properties)
    assert headers == expected
    assert type(headers) is list
    assert all(type(pair) is tuple for pair in headers)


def test_convert_none_passes_the_clients_check_and_is_none_to_its_encoder() -> None:
    headers = kafka_headers((("a", None), ("b", b"2")), None)
    assert isinstance(headers, list)
    assert all(isinstance(pair[1], bytes) for pair in headers)
    assert [(name, value) for name, value in headers] == [("a", None), ("b", b"2")]


class Cluster:
    """What a partitioner asks of the metadata."""

    def __init__(self, *partitions: int) -> None:
        self.partitions = set(partitions)
        self.available = self.partitions

    def topics(self) -> set[str]:
        return {"t", "u"}

    def partitions_for_topic(self, _: str) -> set[int]:
        return self.partitions

    def available_partitions_for_topic(self, _: str) -> set[int]:
        return self.available


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(partitioner, "monotonic", lambda: now[0])
    return now


def place(under_test: RunPartitioner, cluster: Cluster, key: bytes | None = None) -> int:
    return under_test.partition("t", key, key, b"", b"", cluster)


def test_record_with_a_key_goes_where_kafka_python_puts_it(clock: list[float]) -> None:
    under_test, cluster = RunPartitioner(), Cluster(*range(8))
    place(under_test, cluster)
    for number in range(200):
        key = b"key-%d" % number
        plain = DefaultPartitioner().partition("t", key, key, b"", b"", cluster)
        assert place(under_test, cluster, key) == plain


def test_records_without_a_key_within_a_run_go_to_one_partition(clock: list[float]) -> None:
    under_test, cluster = RunPartitioner(), Cluster(*range(50))
    assert len({place(under_test, cluster) for _ in range(100)}) == 1


def test_runs_of_records_without_a_key_reach_every_partition(clock: list[float]) -> None:
    under_test, cluster = RunPartitioner(), Cluster(*range(4))
    found: Counter[int] = Counter()
    for _ in range(400):
        found[place(under_test, cluster)] += 1
        clock[0] += RUN_S
    assert set(found) == cluster.partitions
    assert min(found.values()) > 50


def test_run_whose_partition_is_gone_ends(clock: list[float]) -> None:
    under_test, cluster = RunPartitioner(), Cluster(7)
    assert place(under_test, cluster) == 7
    cluster.partitions = cluster.available = {1}
    assert place(under_test, cluster) == 1


def test_run_begins_only_on_a_partition_that_is_available(clock: list[float]) -> None:
    under_test, cluster = RunPartitioner(), Cluster(*range(20))
    cluster.available = {3}
    assert place(under_test, cluster) == 3


DEFINED = [each for each in vars(vendor).values() if inspect.isclass(each)]


def test_look_up_each_vendor_error_finds_a_row() -> None:
    assert {each for each in DEFINED if issubclass(each, BaseException)} <= TABLE.keys()


@pytest.mark.parametrize("table", [TABLE, OWN], ids=["kafka-python", "librdkafka"])
def test_rows_with_a_reason_of_their_own_are_those_that_can_be_buried_for_it(
    table: Mapping[object, KafkaErrorRule],
) -> None:
    for error, (verdict, reason, _) in table.items():
        is_own = reason is not Reason.ATTEMPTS_EXHAUSTED
        assert is_own == (verdict in {Verdict.REJECTED, Verdict.TARGET_FAILED}), error


@pytest.mark.parametrize(
    ("error", "verdict", "reason"),
    [
        (vendor.MessageSizeTooLargeError("x"), Verdict.REJECTED, Reason.TOO_LARGE),
        (vendor.InvalidRecordError("x"), Verdict.REJECTED, Reason.INVALID),
        (vendor.InvalidTimestampError("x"), Verdict.TARGET_UNAVAILABLE, Reason.ATTEMPTS_EXHAUSTED),
        (vendor.UnsupportedForMessageFormatError("x"), Verdict.TARGET_FAILED, Reason.INVALID),
        (vendor.PolicyViolationError("x"), Verdict.REJECTED, Reason.INVALID),
        (ValueError("x"), Verdict.REJECTED, Reason.INVALID),
        ("\ud800".encode, Verdict.REJECTED, Reason.INVALID),
        (vendor.UnknownTopicOrPartitionError("x"), Verdict.TARGET_FAILED, Reason.TARGET_MISSING),
        (vendor.TopicAuthorizationFailedError("x"), Verdict.TARGET_FAILED, Reason.UNAUTHORIZED),
        (vendor.ClusterAuthorizationFailedError("x"), Verdict.TARGET_FAILED, Reason.UNAUTHORIZED),
        (vendor.NotEnoughReplicasError("x"), Verdict.TARGET_UNAVAILABLE, Reason.ATTEMPTS_EXHAUSTED),
        (vendor.KafkaConnectionError("x"), Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (vendor.KafkaTimeoutError("x"), Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (vendor.RequestTimedOutError("x"), Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (vendor.for_code(32_000)("new"), Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (vendor.IllegalStateError("x"), Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
    ],
)  # fmt: skip
def test_outcome_of_a_known_error_is_what_it_means(
    error: object, verdict: Verdict, reason: Reason
) -> None:
    answer = _raised_by(error) if callable(error) else error
    assert isinstance(answer, BaseException)
    outcome = outcome_of(answer)
    assert (outcome.verdict, outcome.reason) == (verdict, reason)
    assert outcome.error.startswith(f"{type(answer).__name__}\n")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (vendor.KafkaTimeoutError("no answer"), "no answer"),
        (vendor.NotEnoughReplicasError("topic t"), "topic t"),
        (vendor.KafkaTimeoutError(vendor.KafkaConnectionError("reset")), "reset"),
        (
            vendor.UnknownTopicOrPartitionError(None),
            vendor.UnknownTopicOrPartitionError.description,
        ),
        (vendor.KafkaTimeoutError(), "KafkaTimeoutError"),
        (ValueError("a b"), "a b"),
    ],
)
def test_outcome_of_an_error_names_its_class_once(error: Exception, words: str) -> None:
    assert outcome_of(error).error == f"{type(error).__name__}\n{words}"


def test_errors_of_a_moment_are_temporary() -> None:
    assert is_temporary(vendor.NotLeaderForPartitionError)
    assert is_temporary(vendor.NotEnoughReplicasError)
    assert not is_temporary(vendor.InvalidRecordError)
    assert not is_temporary(vendor.NotEnoughReplicasAfterAppendError)


UNSURE = (
    vendor.KafkaStorageError,
    vendor.NotEnoughReplicasAfterAppendError,
    vendor.NotLeaderForPartitionError,
)


@pytest.mark.parametrize("error", UNSURE)
def test_outcome_of_a_failed_partition_that_may_have_appended_is_unsure_by_either_client(
    error: type[vendor.BrokerResponseError],
) -> None:
    for outcome in (outcome_of(error("x")), answered_refusal(KafkaError(error.errno)).outcome):
        assert outcome.verdict is Verdict.TARGET_UNAVAILABLE
        assert outcome.may_be_published


@pytest.mark.parametrize("table", [TABLE, OWN], ids=["kafka-python", "librdkafka"])
def test_rows_are_unsure_where_the_answer_was_lost_or_came_after_the_append(
    table: Mapping[object, KafkaErrorRule],
) -> None:
    unsure = {error for error, row in table.items() if row.is_unsure}
    lost = {error for error, row in table.items() if row.verdict is Verdict.INDETERMINATE}
    assert unsure - lost == (set(UNSURE) if table is TABLE else set())
    assert lost <= unsure


def _raised_by(call: object) -> BaseException:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        call()  # type: ignore[operator]
    return raised.value


CODES = {
    name: code
    for name, code in vars(KafkaError).items()
    if isinstance(code, int) and not name.startswith("__")
}


def test_look_up_each_code_finds_a_row() -> None:
    lacking = [n for n, code in CODES.items() if code not in OWN]
    assert [n for n in lacking if vendor.for_code(CODES[n]) not in TABLE] == []


def test_look_up_a_brokers_error_gives_the_verdict_of_the_other_client() -> None:
    codes = [e.errno for e in TABLE if getattr(e, "errno", None) is not None]
    assert [code for code in codes if row_of(code) != TABLE[vendor.for_code(code)]] == []


@pytest.mark.parametrize(
    ("code", "verdict", "reason"),
    [
        (KafkaError._UNKNOWN_TOPIC, Verdict.TARGET_FAILED, Reason.TARGET_MISSING),
        (KafkaError._UNKNOWN_PARTITION, Verdict.TARGET_FAILED, Reason.TARGET_MISSING),
        (KafkaError._INVALID_DIFFERENT_RECORD, Verdict.FAILED, Reason.ATTEMPTS_EXHAUSTED),
        (KafkaError._MSG_TIMED_OUT, Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (KafkaError._TRANSPORT, Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (KafkaError._PURGE_QUEUE, Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (-20_000, Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (32_000, Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
    ],
)
def test_outcome_of_a_known_error_is_what_it_means_by_librdkafka(
    code: int, verdict: Verdict, reason: Reason
) -> None:
    outcome = answered_refusal(KafkaError(code, "in other words")).outcome
    assert (outcome.verdict, outcome.reason) == (verdict, reason)
    assert outcome.error_message == "in other words"
    assert outcome.error.startswith("_TRANSPORT\n") or code != KafkaError._TRANSPORT


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)), Verdict.REJECTED),
        (KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC)), Verdict.TARGET_FAILED),
        (BufferError("full"), Verdict.UNAVAILABLE),
        (ValueError("x"), Verdict.REJECTED),
        (TypeError("x"), Verdict.REJECTED),
    ],
)
def test_refusal_of_what_the_client_would_not_take_is_what_it_means(
    error: Exception, verdict: Verdict
) -> None:
    assert produce_refusal(error).verdict is verdict
