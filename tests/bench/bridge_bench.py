"""The bridge against the same client publishing alone, in turn, in one run on one machine.

    make bench

Every round is printed, then the medians. Ratios and CPU tell; wall time on a shared machine does
not. The bridge's time is from store to broker confirm, its store calls included; envelopes are
scheduled before it starts, and that is timed apart.
"""

import argparse
import json
import resource
import secrets
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pika
from kafka.admin import KafkaAdminClient

from bridge.config import Config
from bridge.envelope import Envelope
from bridge.runner import Runner
from bridge.store.connection import Connection, open_connection
from bridge.store.delay_store import DelayStore
from bridge.store.keys import Shard
from connectors.kafka import open_publisher as open_kafka
from connectors.rabbitmq import open_publisher as open_rabbitmq
from tests.bench.bare import HEADERS, RabbitPublisher, publish_to_kafka

SERVICES = Path(__file__).resolve().parents[2] / ".services" / "services.json"
BODY_BYTES = 200
SETTLED_WITHIN_S = 120


class Round(NamedTuple):
    """One measurement; CPU is this process's alone, store CPU the server's."""

    per_second: float
    cpu_us: float
    store_us: float = 0.0
    round_trips: float = 0.0


class Meter:
    """Measures a call: time, CPU of this process, CPU and calls of the store."""

    def __init__(self, connection: Connection, count: int) -> None:
        self._client: Any = connection.client
        self._count = count

    def measure(self, work: Callable[[], None]) -> Round:
        started, before = time.perf_counter(), self._read()
        work()
        seconds, after = time.perf_counter() - started, self._read()
        cpu_s, store_s, calls = (b - a for a, b in zip(before, after, strict=True))
        micro = 1e6 / self._count
        return Round(self._count / seconds, cpu_s * micro, store_s * micro, calls / self._count)

    def _read(self) -> tuple[float, float, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu = self._client.info("cpu")
        stats = self._client.info("commandstats")
        calls = stats.get("cmdstat_evalsha", {}).get("calls", 0)
        store_s = cpu["used_cpu_user"] + cpu["used_cpu_sys"]
        return usage.ru_utime + usage.ru_stime, store_s, calls


class Bench:
    """One broker: its bare client, and the bridge with it."""

    def __init__(self, broker: str, count: int, services: dict[str, Any]) -> None:
        self.broker, self.count, self.services = broker, count, services
        self.name = f"bench-{secrets.token_hex(4)}"
        self.connection = open_connection(services["redis"]["url"])
        self.meter = Meter(self.connection, count)
        self.bodies = [secrets.token_bytes(BODY_BYTES) for _ in range(count)]

    def make_target(self) -> dict[str, str]:
        if self.broker == "kafka":
            admin = KafkaAdminClient(bootstrap_servers=self.services["kafka"]["bootstrap"])
            admin.create_topics({self.name: {"num_partitions": 4, "replication_factor": 1}})
            admin.close()
            return {"broker": "b", "topic": self.name}
        connection = pika.BlockingConnection(pika.URLParameters(self.services["rabbitmq"]["url"]))
        connection.channel().queue_declare(self.name, durable=True)
        connection.close()
        return {"broker": "b", "exchange": "", "routing_key": self.name}

    def bare(self) -> Round:
        if self.broker == "kafka":
            bootstrap = self.services["kafka"]["bootstrap"]
            return self.meter.measure(lambda: publish_to_kafka(bootstrap, self.name, self.bodies))
        publisher = RabbitPublisher(self.services["rabbitmq"]["url"], self.name, self.bodies)
        return self.meter.measure(publisher.run)

    def bridge(self, target: dict[str, str]) -> tuple[Round, Round]:
        namespace = f"{self.name}-{secrets.token_hex(3)}"
        settings, publisher = self._publisher()
        config = Config.model_validate(
            {
                "version": 1,
                "store": {"url": self.services["redis"]["url"], "namespace": namespace},
                "brokers": {"b": settings},
                "routes": {"r": {"target": target}},
            }
        )
        store = DelayStore(self.connection, Shard(namespace, "r", 0))
        scheduling = self.meter.measure(lambda: self._schedule(store))
        runner = Runner(config, open_connection(config.store.url), {"b": publisher})

        def deliver() -> None:
            runner.start()
            self._wait_empty(store)

        delivering = self.meter.measure(deliver)
        runner.drain()
        self.connection.client.delete(*store.shard.keys(), f"{{{namespace}}}:routes")
        return scheduling, delivering

    def _publisher(self) -> tuple[dict[str, Any], Any]:
        if self.broker == "kafka":
            settings = {"type": "kafka", "bootstrap_servers": [self.services["kafka"]["bootstrap"]]}
            return settings, open_kafka(settings, 15.0)
        settings = {"type": "rabbitmq", "url": self.services["rabbitmq"]["url"]}
        return settings, open_rabbitmq(settings, 15.0)

    def _schedule(self, store: DelayStore) -> None:
        for first in range(0, self.count, 500):
            batch = self.bodies[first : first + 500]
            envelopes = [Envelope.new(body, delay="0ms") for body in batch]
            store.schedule(envelopes, max_delay_ms=1000)

    def _wait_empty(self, store: DelayStore) -> None:
        give_up_at = time.monotonic() + SETTLED_WITHIN_S
        while any(store.next()[1:7]):
            assert time.monotonic() < give_up_at, store.next()
            time.sleep(0.02)


def median(rounds: list[Round]) -> Round:
    return Round(*(statistics.median(column) for column in zip(*rounds, strict=True)))


def row(name: str, each: Round) -> str:
    return (
        f"{name:<24}{each.per_second:>10.0f}/s{each.cpu_us:>10.1f} µs{each.store_us:>10.1f} µs"
        f"{each.round_trips:>10.4f}"
    )


def run(broker: str, count: int, rounds: int) -> None:
    bench = Bench(broker, count, json.loads(SERVICES.read_text()))
    target = bench.make_target()
    what = f"{count} messages of {BODY_BYTES} bytes and {len(HEADERS)} headers"
    print(f"{broker}, {what}, {rounds} rounds")
    print(f"{'':<24}{'messages':>12}{'CPU each':>13}{'store CPU':>13}{'calls':>10}")
    bare: list[Round] = []
    scheduling: list[Round] = []
    delivering: list[Round] = []
    for _ in range(rounds):
        bare.append(bench.bare())
        print(row("  client alone", bare[-1]))
        scheduled, delivered = bench.bridge(target)
        scheduling.append(scheduled)
        delivering.append(delivered)
        print(row("  schedule", scheduled))
        print(row("  bridge", delivered))
    alone, bridge, schedule = median(bare), median(delivering), median(scheduling)
    print(row("median client alone", alone))
    print(row("median schedule", schedule))
    print(row("median bridge", bridge))
    ratios = sorted(b.per_second / a.per_second for a, b in zip(bare, delivering, strict=True))
    print(f"bridge / client alone: {statistics.median(ratios):.2f} of its throughput,")
    print(f"  {alone.cpu_us / bridge.cpu_us:.2f} by CPU of the process alone;")
    calls = schedule.round_trips + bridge.round_trips
    store_us = schedule.store_us + bridge.store_us
    print(
        f"  {calls:.4f} store calls and {store_us:.1f} µs of store CPU a message in its whole life"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", default="kafka,rabbitmq")
    parser.add_argument("--count", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for broker in arguments.brokers.split(","):
        run(broker, arguments.count, arguments.rounds)


if __name__ == "__main__":
    main()
