"""Where a record without a key goes: a run of them to one partition, then another.

kafka-python draws a partition for each such record, which costs more than decoding the record from
the store, and spreads a batch over more produce batches than it fills.
"""

from time import monotonic
from typing import Any, NamedTuple

from kafka.partitioner.default import DefaultPartitioner

RUN_S = 0.005


class Run(NamedTuple):
    """The partition of a topic's records without a key, for a moment."""

    partition: int
    ends_at: float


class RunPartitioner(DefaultPartitioner):  # type: ignore[misc]
    """Keys go where Java's client and kafka-python put them; what has none, by `RUN_S` seconds.

    Each run draws one of the partitions that are available, so that they fill evenly. Called by one
    thread at a time: `Client.turn`.
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
