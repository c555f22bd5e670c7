"""Makes the Kafka topics and RabbitMQ queues that the routes name, where they do not exist.

For the local stack: in earnest topics and queues have owners, and duebridge creates none.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pika
from kafka.admin import KafkaAdminClient

from duebridge.config.load import load_config, resolved_broker
from duebridge.config.models import Config
from duebridge.envelope import Target

PARTITIONS = 3


def targets(config: Config) -> dict[str, list[Target]]:
    """Return all that routes deliver to, by the name of the broker."""
    found: dict[str, list[Target]] = {name: [] for name in config.brokers}
    for route in config.routes.values():
        for target in filter(None, (route.target, route.dead_letter)):
            found[target.broker].append(target)
    return found


def make_topics(servers: object, wanted: Iterable[Target]) -> list[str]:
    """Create the topics that are missing; return their names."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    missing = {str(each.topic) for each in wanted} - set(admin.list_topics())
    settings = {"num_partitions": PARTITIONS, "replication_factor": 1}
    if missing:
        admin.create_topics(dict.fromkeys(sorted(missing), settings))
    admin.close()
    return sorted(missing)


def make_queues(url: str, wanted: Iterable[Target]) -> list[str]:
    """Declare each queue, and each exchange with a queue of the same name; return their names."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for each in wanted:
            queue = each.exchange or each.routing_key
            channel.queue_declare(queue, durable=True)
            if each.exchange:
                channel.exchange_declare(each.exchange, "direct", durable=True)
                channel.queue_bind(queue, each.exchange, each.routing_key)
    return sorted({str(each.exchange or each.routing_key) for each in wanted})


def main() -> None:
    """Make what the configuration names, and say so."""
    config = load_config(Path(os.environ.get("DUEBRIDGE_CONFIG", "duebridge.yaml")))
    for name, wanted in targets(config).items():
        settings = resolved_broker(config, name)
        if settings["type"] == "kafka":
            made = make_topics(settings["bootstrap_servers"], wanted)
        else:
            made = make_queues(str(settings["url"]), list(wanted))
        sys.stdout.write(f"{name}: {', '.join(made) or 'nothing to make'}\n")


if __name__ == "__main__":
    main()
