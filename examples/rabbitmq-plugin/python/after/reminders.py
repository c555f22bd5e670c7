"""Reminders by mail, later: `reminders.py publish 3000 1000` (ms), and `reminders.py consume`."""

import os
import sys
import time
from uuid import uuid4

import pika

EXCHANGE = os.environ.get("EXCHANGE", "reminders")
QUEUE = f"{EXCHANGE}.mail"


def now():
    return int(time.time() * 1000)


def publish(channel, delays):
    channel.confirm_delivery()
    for delay in delays:
        properties = pika.BasicProperties(
            message_id=str(uuid4()),
            content_type="text/plain",
            delivery_mode=2,
            headers={"x-delay": int(delay), "tenant": "a"},
        )
        print(now(), delay, properties.message_id, flush=True)
        channel.basic_publish(EXCHANGE, "mail", f"remind after {delay}", properties)


def consume(channel):
    channel.queue_declare(QUEUE, durable=True)
    channel.queue_bind(QUEUE, f"{EXCHANGE}.due", "mail")
    print("waiting", flush=True)
    for method, properties, body in channel.consume(QUEUE):
        print(now(), properties.message_id, properties.headers["tenant"], body.decode(), flush=True)
        channel.basic_ack(method.delivery_tag)


if __name__ == "__main__":
    url = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/")
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, passive=True)
        if sys.argv[1] == "publish":
            publish(channel, sys.argv[2:])
        else:
            consume(channel)
