"""Batches that no client sends and a broker takes: records that state any offset, and the like."""

import struct
from collections.abc import Sequence
from contextlib import closing
from threading import Event

from kafka import KafkaProducer, TopicPartition
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

CRC_AT, ATTRIBUTES_AT, LAST_AT = 17, 21, 23
SENT_AT_MS, WITHIN_MS = 1_700_000_000_000, 10_000


def crafted(deltas: Sequence[int], bodies: Sequence[bytes], codec: int = 0) -> bytearray:
    """Return a batch whose records state these offsets from its first one."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 2**30)
    for delta, body in zip(deltas, bodies, strict=True):
        assert builder.append(delta, SENT_AT_MS, b"key", body, []) is not None
    batch = bytearray(builder.build())
    struct.pack_into(">i", batch, LAST_AT, len(deltas) - 1)  # which is what a broker checks
    return with_checksum(batch)


def with_checksum(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, CRC_AT, calc_crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return batch


def produce(bootstrap: str, topic: str, batch: bytes | bytearray) -> None:
    """Have the broker append a batch as it is to partition 0."""
    part = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=bytes(batch))
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=WITHIN_MS,
        topic_data=[data],
        min_version=0,
        max_version=9,
    )
    with closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer:
        producer.partitions_for(topic)
        leader = producer._metadata.leader_for_partition(TopicPartition(topic, 0))
        manager, answered = producer._sender._client._manager, Event()
        future = manager.call_soon(manager.send, request, leader)
        future.add_both(lambda _: answered.set())
        assert answered.wait(WITHIN_MS / 1000), "no answer"
    (found,) = future.value.responses[0].partition_responses
    assert found.error_code == 0, found
