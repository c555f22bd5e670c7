"""A consumer that rejects what it cannot do now; the queue's dead-letter exchange does the rest."""

import os
import time

import pika

QUEUE = os.environ.get("QUEUE", "orders")
# "" delivers to the queue that the key names: the intake's. With at-least-once the order leaves
# this queue only when that one has it.
LATER = {
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": f"{QUEUE}.later",
    "x-queue-type": "quorum",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


def consume(channel):
    for method, _, body in channel.consume(QUEUE):
        print(f"trying {body.decode()} at {int(time.time() * 1000)}", flush=True)
        if body.startswith(b"closed"):
            channel.basic_reject(method.delivery_tag, requeue=False)
        else:
            channel.basic_ack(method.delivery_tag)


if __name__ == "__main__":
    url = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/")
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True, arguments=LATER)
        channel.basic_qos(prefetch_count=10)
        print("waiting", flush=True)
        consume(channel)
