"""A source of RabbitMQ beside a consumer of pika that only acks: messages a second, CPU.

    python tests/bench/rabbitmq_source.py URL [COUNT]

The rounds alternate; each one reads as many messages of 200 bytes with five headers.
"""

import secrets
import statistics
import sys
import time
from contextlib import closing
from typing import Any

import pika

from duebridge.ports.source import SourcePlan
from duebridge_connectors.rabbitmq.source.rabbit_source import open_source
from tests.support.contract.source_under_test import Memory

PREFETCH, ACK_EVERY, ROUNDS = 1000, 250, 3
HEADERS = {"x-delay": 5000, "tenant": "a", "traceparent": "0" * 55, "attempt": 1, "kind": "order"}
KINDS = ("classic", "quorum", "stream")
FROM_FIRST = {"x-stream-offset": "first"}


def bare(url: str, queue: str, kind: str, count: int) -> None:
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        given = FROM_FIRST if kind == "stream" else None
        for number, (method, _, _) in enumerate(channel.consume(queue, arguments=given), 1):
            if number % ACK_EVERY == 0 or number == count:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if number == count:
                return


def source(url: str, queue: str, _: str, count: int) -> None:
    plan = SourcePlan("bench", "billing", {"queue": queue, "prefetch": PREFETCH})
    with closing(open_source({"url": url}, plan, Memory())) as opened:
        while count > 0:
            batch = opened.receive(5)
            opened.settle(batch)
            count -= len(batch)


def fill(channel: Any, queue: str, count: int) -> None:
    for number in range(count):
        properties = pika.BasicProperties(
            headers=HEADERS, message_id=f"id-{number}", delivery_mode=2
        )
        channel.basic_publish("", queue, bytes(200), properties)
    give_up_at = time.monotonic() + 60
    while channel.queue_declare(queue, passive=True).method.message_count < count:
        assert time.monotonic() < give_up_at


def main(url: str, count: int) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    for kind in KINDS:
        found: dict[str, list[tuple[float, float]]] = {}
        for _ in range(ROUNDS):
            for read in (bare, source):
                queue = f"bench-{secrets.token_hex(4)}"
                channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
                fill(channel, queue, count)
                wall, cpu = time.monotonic(), time.process_time()
                read(url, queue, kind, count)
                wall, cpu = time.monotonic() - wall, time.process_time() - cpu
                rate, cost = count / wall, cpu / count * 1e6
                found.setdefault(read.__name__, []).append((rate, cost))
                print(f"{kind:8} {read.__name__:7} {rate:8,.0f}/s {cost:6.1f} us")
                channel.queue_delete(queue)
        rates = {name: statistics.median(each[0] for each in rows) for name, rows in found.items()}
        print(f"{kind:8} the source is {rates['source'] / rates['bare']:.2f} of the bare consumer")
    connection.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 30_000)
