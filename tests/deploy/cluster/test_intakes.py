"""Intakes in pods of their own: what programs send to a broker with a delay comes out when due."""

import pika
import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MESSAGES = 2000
DELAY = b"3000"


class Programs:
    """Programs that know the topic and the queue of the intakes, and nothing of duebridge."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self.topic = self.queue = f"{bridge.name}-later"
        self.refused = f"{bridge.name}-refused"
        admin = KafkaAdminClient(bootstrap_servers=bridge.stack.kafka)
        parts = {"num_partitions": 4, "replication_factor": 1}
        admin.create_topics({self.topic: parts, self.refused: parts})
        admin.close()
        with bridge.rabbitmq() as channel:
            for name in (self.queue, self.refused):
                channel.queue_declare(name, durable=True)

    def intakes(self) -> dict[str, object]:
        refused = {"broker": "kafka", "topic": self.refused}
        return {
            "later": {
                "source": {"broker": "kafka", "topic": self.topic, "group": self._bridge.name},
                "route": "kafka",
                "dead_letter": refused,
            },
            "plugin": {
                "source": {"broker": "rabbit", "queue": self.queue},
                "route": "rabbit",
                "dead_letter": {"broker": "rabbit", "exchange": "", "routing_key": self.refused},
            },
        }

    def send_to_kafka(self, count: int) -> None:
        """Send messages; the bridge expects them under the ids that their places give."""
        producer = KafkaProducer(bootstrap_servers=self._bridge.stack.kafka)
        headers = [("x-delay", DELAY)]
        sent = [producer.send(self.topic, b"body", headers=headers) for _ in range(count)]
        producer.flush()
        for each in (future.get() for future in sent):
            place = f"{each.partition}:{each.offset}:{each.timestamp}"
            self._bridge.accepted.add(f"kafka:{self.topic}:{place}")
        producer.close()

    def send_to_rabbitmq(self, count: int) -> set[str]:
        ids = {f"message-{number}" for number in range(count)}
        with self._bridge.rabbitmq() as channel:
            channel.confirm_delivery()
            for each in ids:
                properties = pika.BasicProperties(message_id=each, headers={"x-delay": int(DELAY)})
                channel.basic_publish("", self.queue, b"body", properties)
        return ids


@pytest.fixture
def programs(bridge: Bridge) -> Programs:
    """Give what sends to a bridge with intakes, each of them in pods of its own too."""
    programs = Programs(bridge)
    config = {**bridge.values["config"], "intakes": programs.intakes()}
    bridge.install(
        config=config, replicas=1, intakeWorkers={"later": {"replicas": 2}, "plugin": {}}
    )
    return programs


def pods_of(bridge: Bridge, intake: str) -> list[str]:
    found = bridge.pods_of(f"duebridge/intake={intake}")
    return [str(each["metadata"]["name"]) for each in found]


def accepted(bridge: Bridge, intake: str) -> float:
    """Return what the pods of an intake have stored."""
    series = f'duebridge_intake_accepted_total{{intake="{intake}"}}'
    return sum(bridge.metric(series, pod) for pod in pods_of(bridge, intake))


def scale_workers(bridge: Bridge, count: int) -> None:
    """Scale, and wait for pods that end, too: a worker takes in until it is gone."""
    bridge.kube.kubectl("scale", f"deployment/{bridge.name}", f"--replicas={count}")
    labels = f"app.kubernetes.io/instance={bridge.name},app.kubernetes.io/component=worker"

    def has_as_many() -> bool:
        return len(bridge.kube.get("pods", "-l", labels)["items"]) == count

    until(has_as_many, f"{count} workers")


def test_pods_of_an_intake_take_in_alone_and_workers_deliver(
    bridge: Bridge, programs: Programs
) -> None:
    scale_workers(bridge, 0)
    programs.send_to_kafka(MESSAGES)
    ids = programs.send_to_rabbitmq(MESSAGES)
    until(lambda: accepted(bridge, "later") == MESSAGES, "what Kafka has to be taken in")
    until(lambda: accepted(bridge, "plugin") == MESSAGES, "what RabbitMQ has to be taken in")

    scale_workers(bridge, 1)
    bridge.settle_once()
    with bridge.rabbitmq() as channel:
        found: list[str] = []
        for _, properties, _ in channel.consume(bridge.name, auto_ack=True, inactivity_timeout=60):
            assert properties is not None, f"{len(found)} of {MESSAGES} came"
            found.append(properties.message_id)
            if len(found) == MESSAGES:
                break
        channel.cancel()
    assert set(found) == ids


def test_pods_of_an_intake_that_are_replaced_lose_and_double_nothing(
    bridge: Bridge, programs: Programs
) -> None:
    before = set(pods_of(bridge, "later"))
    name = f"deployment/{bridge.name}-later"
    programs.send_to_kafka(MESSAGES)
    bridge.kube.kubectl("rollout", "restart", name)
    programs.send_to_kafka(MESSAGES)
    bridge.kube.kubectl("rollout", "status", name, "--timeout=90s")
    assert not before & set(pods_of(bridge, "later"))

    programs.send_to_kafka(MESSAGES)
    bridge.settle_once()
