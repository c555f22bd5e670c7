"""Sends delayed records with kafka-python alone; knows no duebridge but one header.

    kafka_program.py BOOTSTRAP TOPIC    # a JSON object a line on standard input

Exits 0 once the broker has confirmed every record.
"""

import json
import sys
from contextlib import closing

from kafka import KafkaProducer


def main() -> None:
    """Send every line of standard input; return once all are confirmed."""
    bootstrap, topic = sys.argv[1:]
    with closing(KafkaProducer(bootstrap_servers=bootstrap, acks="all")) as producer:
        sent = [send(producer, topic, json.loads(line)) for line in sys.stdin]
        for each in sent:
            each.get(timeout=30)


def send(producer, topic, call):
    """Send one call, due at its instant; return the future of its confirm."""
    headers = {**call["headers"], "content-type": call["content_type"]}
    headers["x-deliver-at"] = str(call["at_ms"])
    pairs = [(name, value.encode()) for name, value in headers.items()]
    return producer.send(topic, call["body"].encode(), key=call["id"].encode(), headers=pairs)


if __name__ == "__main__":
    main()
