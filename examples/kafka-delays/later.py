"""Reminders by Kafka, later: `python later.py 3000 1000` (ms from now). Prints what it sent."""

import os
import sys
import time

from kafka import KafkaProducer

TOPIC = os.environ.get("TOPIC", "reminders")

producer = KafkaProducer(bootstrap_servers=os.environ.get("KAFKA", "localhost:9092"))
for delay in sys.argv[1:]:
    due = int(time.time() * 1000) + int(delay)
    body = f"remind after {delay}"
    headers = [("x-deliver-at", str(due).encode()), ("tenant", b"a")]
    producer.send(f"{TOPIC}-later", body.encode(), key=b"customer-7", headers=headers)
    print(due, body, flush=True)
producer.close()
