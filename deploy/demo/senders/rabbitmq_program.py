"""Publishes messages with `x-delay` to a queue; knows no duebridge.

    rabbitmq_program.py URL QUEUE    # a JSON object a line on standard input

Exits 0 once the broker has confirmed every message.
"""

import json
import sys
import time

import pika


def main() -> None:
    """Publish every line of standard input, each confirmed before the next."""
    url, queue = sys.argv[1:]
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for line in sys.stdin:
            call = json.loads(line)
            delay_ms = max(0, call["at_ms"] - int(time.time() * 1000))
            properties = pika.BasicProperties(
                message_id=call["id"],
                content_type=call["content_type"],
                delivery_mode=pika.DeliveryMode.Persistent,
                headers={**call["headers"], "x-delay": delay_ms},
            )
            channel.basic_publish("", queue, call["body"].encode(), properties, mandatory=True)


if __name__ == "__main__":
    main()
