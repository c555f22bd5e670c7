"""A release of the chart with a route to each broker, and all that goes in and comes out of it."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pika
import yaml
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient

from duebridge import Envelope, Producer
from tests.deploy.chart import Object
from tests.deploy.cluster.kube import Kube, meanwhile, until
from tests.deploy.cluster.stack import Stack

CHUNK = 20  # envelopes that a stream schedules at once
PAUSE_S = 0.05
PYTHON = "/opt/duebridge/bin/python"


class Bridge:
    """One release; the ids that were accepted for Kafka, and how often each has arrived there."""

    def __init__(
        self,
        kube: Kube,
        stack: Stack,
        name: str,
        image: str,
        home: Path,
        store: Object | None = None,
    ) -> None:
        """Make its targets; `store` is the configuration's, by default the stack's Redis."""
        self.kube, self.stack, self.name, self._home = kube, stack, name, home
        self._store = store or {"url": stack.redis_url}
        repository, _, tag = image.rpartition(":")
        self.values: Object = {
            "fullnameOverride": name,
            "image": {"repository": repository, "tag": tag},
            "config": self._config(),
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        }
        self.accepted: set[str] = set()
        self.arrived: Counter[str] = Counter()
        self._make_targets()
        self._producer = Producer.from_config(self.written(self.values["config"]))
        self._consumer = KafkaConsumer(
            name, bootstrap_servers=stack.kafka, auto_offset_reset="earliest"
        )

    def _config(self) -> Object:
        exchange = {"broker": "rabbit", "exchange": "", "routing_key": self.name}
        return {
            "version": 1,
            "store": {**self._store, "namespace": self.name},
            "brokers": {
                "kafka": {"type": "kafka", "bootstrap_servers": [self.stack.kafka]},
                "rabbit": {"type": "rabbitmq", "url": "${RABBIT_URL}"},
            },
            "routes": {
                "kafka": {"target": {"broker": "kafka", "topic": self.name}},
                "rabbit": {"target": exchange},
            },
        }

    def _make_targets(self) -> None:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{self.name}-rabbit"}}
        self.kube.apply({**secret, "stringData": {"url": self.stack.rabbitmq_url}})
        reference = {"secret": f"{self.name}-rabbit", "key": "url"}
        self.values["secrets"] = {"env": {"RABBIT_URL": reference}}
        admin = KafkaAdminClient(bootstrap_servers=self.stack.kafka)
        admin.create_topics({self.name: {"num_partitions": 4, "replication_factor": 1}})
        admin.close()
        with self.rabbitmq() as channel:
            channel.queue_declare(self.name, durable=True)

    @contextmanager
    def rabbitmq(self) -> Iterator[Any]:
        """Give a channel of a test's own."""
        with pika.BlockingConnection(pika.URLParameters(self.stack.rabbitmq_url)) as connection:
            yield connection.channel()

    def written(self, content: Object) -> Path:
        """Return a file with this content."""
        file = self._home / f"{self.name}.yaml"
        file.write_text(yaml.safe_dump(content), "utf-8")
        return file

    # ── the release ─────────────────────────────────────────────────────────────────────────────

    def install(self, *options: str, **changes: Any) -> str:
        """Install or upgrade with these values changed; they stay changed where that succeeds."""
        values = {**self.values, **changes}
        shown = self.kube.install(self.name, self.written(values), *options)
        self.values = values
        return shown

    def pods(self) -> list[Object]:
        """Return the workers' pods that are not about to end."""
        return self.pods_of("app.kubernetes.io/component=worker")

    def pods_of(self, label: str) -> list[Object]:
        """Return the release's pods with a label that are not about to end."""
        labels = f"app.kubernetes.io/instance={self.name},{label}"
        found = self.kube.get("pods", "-l", labels)["items"]
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def uids(self) -> set[str]:
        """Return what tells these pods from all that come after them."""
        return {each["metadata"]["uid"] for each in self.pods()}

    def configuration(self) -> Any:
        """Return what the workers' ConfigMap holds."""
        return yaml.safe_load(self.kube.get("configmap", self.name)["data"]["duebridge.yaml"])

    def pod(self) -> str:
        """Return the name of a worker's pod."""
        return str(self.pods()[0]["metadata"]["name"])

    def python(self, pod: str, program: str) -> str:
        """Return what a program prints inside a worker's container; raises `Refused`."""
        return self.kube.kubectl("exec", pod, "-c", "worker", "--", PYTHON, "-c", program)

    def restarts(self, pod: str) -> int:
        """Return how often the container of a pod was started again."""
        statuses = self.kube.get("pod", pod)["status"]["containerStatuses"]
        return int(statuses[0]["restartCount"])

    def close(self) -> None:
        """Take all of it away."""
        self._producer.close()
        self._consumer.close()
        self.kube.helm("uninstall", self.name, "--ignore-not-found")

    # ── what goes in and comes out ──────────────────────────────────────────────────────────────

    def schedule(self, count: int, delay: str = "1s", route: str = "kafka") -> set[str]:
        """Return the ids of so many envelopes, all accepted; those for Kafka are counted there."""
        receipts = self._producer.schedule_many(
            route, [Envelope.new(b"x" * 200, delay=delay) for _ in range(count)]
        )
        assert {receipt.status for receipt in receipts} == {"accepted"}
        ids = {receipt.id for receipt in receipts}
        if route == "kafka":
            self.accepted |= ids
        return ids

    def send(self, id: str, delay: str) -> None:
        """Have one accepted by the command line in a pod."""
        words = ("send", "kafka", "hello", "--delay", delay, "--id", id)
        self.kube.kubectl("exec", f"deploy/{self.name}", "--", "duebridge", *words)
        self.accepted.add(id)

    def under_load(self) -> AbstractContextManager[None]:
        """Schedule a few hundred a second until the block is done, whatever happens meanwhile."""
        return meanwhile(lambda: self.schedule(CHUNK, delay="300ms"), PAUSE_S)

    def read(self) -> None:
        """Count what has arrived in the topic since the last time."""
        for records in self._consumer.poll(timeout_ms=500).values():
            for record in records:
                ids = [value for name, value in record.headers if name == "x-message-id"]
                self.arrived[ids[0].decode()] += 1

    def settle(self, within_s: float = 60.0) -> float:
        """Return how long it took until every accepted id had arrived; fails where one does not."""

        def is_whole() -> bool:
            self.read()
            return self.accepted <= self.arrived.keys()

        return until(is_whole, "messages", within_s)

    def settle_once(self, within_s: float = 60.0) -> float:
        """Settle, and fail where a copy has arrived too."""
        took_s = self.settle(within_s)
        assert self.doubled() == 0
        return took_s

    def doubled(self) -> int:
        """Return how many copies too many have arrived, after a look at what came last."""
        give_up_at = time.monotonic() + 2
        while time.monotonic() < give_up_at:
            self.read()
        assert self.arrived.keys() <= self.accepted
        return sum(self.arrived.values()) - len(self.arrived)

    def page(self, path: str, pod: str = "") -> str:
        """Return a page of the workers by way of their Service, or of one pod."""
        place = f"pods/{pod}:8080" if pod else f"services/{self.name}:health"
        url = f"/api/v1/namespaces/{self.kube.namespace}/{place}/proxy/{path}"
        return self.kube.kubectl("get", "--raw", url)

    def metric(self, series: str, pod: str = "") -> float:
        """Return the sum of the series that begin so."""
        lines = self.page("metrics", pod).splitlines()
        return sum(float(line.split()[1]) for line in lines if line.startswith(series))

    def due_within_60s(self) -> int:
        """Return what the workers tell a scaler."""
        return int(json.loads(self.page("due"))["totals"]["due_within_s"]["60"])
