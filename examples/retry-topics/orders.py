"""The same consumer without Spring: it says itself where the order came from, and when to try."""

import os
import time

from kafka import KafkaConsumer, KafkaProducer

TOPIC = os.environ.get("TOPIC", "orders")
KAFKA = os.environ.get("KAFKA", "localhost:9092")


def send(order):
    print(f"trying {order} at {int(time.time() * 1000)}", flush=True)
    if order.startswith("closed"):
        raise RuntimeError("the warehouse is closed")


def later(producer, record):
    headers = [*record.headers, ("x-origin", record.topic.encode()), ("x-retry-after", b"1500")]
    sent = {"key": record.key, "headers": headers, "timestamp_ms": record.timestamp}
    producer.send(f"{TOPIC}-later", record.value, **sent).get(timeout=30)


if __name__ == "__main__":
    producer = KafkaProducer(bootstrap_servers=KAFKA)
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=KAFKA,
        group_id=f"{TOPIC}-warehouse",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    for record in consumer:
        try:
            send(record.value.decode())
        except RuntimeError:
            later(producer, record)
        consumer.commit()
