"""Sticky partitioner: records without a key share a partition for a short time.

kafka-python draws a partition per record, which costs more than decoding the record and splits a
batch into many small produce batches.
"""

from time import monotonic
from typing import Any, NamedTuple

from kafka.partitioner.default import DefaultPartitioner

RUN_S = 0.005


class Run(NamedTuple):
    """The current partition of a topic's records without a key."""

    partition: int
    ends_at: float


class RunPartitioner(DefaultPartitioner):  # type: ignore[misc]
    """Partitions keys as the Java client does; changes the partition of others every `RUN_S`.

    Each run draws an available partition at random. Not thread-safe: callers hold `turn`.
    """

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}

    def partition(
        self,
        topic: str,
        key: object,
        serialized_key: bytes | None,
        value: object,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> int:
        """Return the partition of a record; see `kafka.partitioner.Partitioner`."""
        is_keyed = serialized_key is not None
        run = None if is_keyed else self._runs.get(topic)
        now = monotonic()
        if run and now < run.ends_at and run.partition in cluster.partitions_for_topic(topic):
            return run.partition
        drawn: int = super().partition(topic, key, serialized_key, value, serialized_value, cluster)
        if not is_keyed:
            self._runs[topic] = Run(drawn, now + RUN_S)
        return drawn
