"""Which partition a record goes to."""

from collections import Counter

import pytest
from kafka.partitioner.default import DefaultPartitioner

from duebridge_connectors.kafka import partitioner
from duebridge_connectors.kafka.partitioner import RUN_S, RunPartitioner


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
