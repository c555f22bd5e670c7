"""A Kafka consumer that never blocks on a failed message: duebridge brings it back later.

The failed message is handed to a route with a delay, and only then is its offset committed: a crash
between the two hands it over twice, under one id, which the store answers with `duplicate`.
After the last delay it goes to the topic of failed orders.
"""

import os
from contextlib import closing
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer

from duebridge import Producer

TOPIC = os.environ.get("TOPIC", "shop-orders")
DELAYS = os.environ.get("DELAYS", "30s 5m 1h").split()
# Written by each delivery, so not handed back.
PER_DELIVERY = {"failures", "x-attempt", "x-due-at", "x-message-id", "x-route", "x-scheduled-at"}


def handle(order: str) -> None:
    """Stand in for your own code: here the warehouse is open while a file exists."""
    if not Path("warehouse-is-open").exists():
        raise RuntimeError("the warehouse is closed")
    print(f"{order}: sent")


def failures_of(record: Any) -> int:
    """Return how often this order failed before; `x-attempt` counts the bridge's deliveries."""
    return int(dict(record.headers).get("failures", b"0"))


def hand_over(producer: Producer, record: Any) -> str:
    """Give a failed order to duebridge, with its key and headers; returns the route."""
    failures = failures_of(record)
    has_delay = failures < len(DELAYS)
    route = "orders-again" if has_delay else "orders-failed"
    own = [header for header in record.headers if header[0] not in PER_DELIVERY]
    producer.schedule(
        route,
        record.value,
        delay=DELAYS[failures] if has_delay else "0s",
        id=f"{record.topic}-{record.partition}-{record.offset}",
        key=record.key,
        headers=[*own, ("failures", str(failures + 1))],
    )
    return route


def consume(consumer: KafkaConsumer, producer: Producer) -> None:
    for record in consumer:
        order = record.value.decode()
        try:
            handle(order)
        except Exception as error:  # whatever it is, the order is not lost
            print(f"{order}: {error}; handed to {hand_over(producer, record)}")
        consumer.commit()


if __name__ == "__main__":
    orders = KafkaConsumer(
        TOPIC,
        bootstrap_servers=os.environ.get("KAFKA", "localhost:9092"),
        group_id=f"{TOPIC}-warehouse",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    with closing(orders), Producer.from_config("duebridge.yaml") as producer:
        consume(orders, producer)
