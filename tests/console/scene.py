"""A store as a busy day leaves it: envelopes in every state, workers, and a target that fails.

Everything goes through the store's own calls; the workers' records are written as workers write
them, again and again, since the store forgets them after seconds.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from duebridge.config.load import load_config
from duebridge.config.models import Config
from duebridge.envelope import Envelope
from duebridge.ports.publisher import Reason
from duebridge.producer import Producer
from duebridge.store.delay_store import DelayStore
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.wire.leases import Claim
from duebridge.store.wire.transitions import Ack, Burial, Retry, SetAside
from duebridge.store.workers import (
    HeldTarget,
    IntakeRecord,
    LaneRecord,
    WorkerRecord,
    Workers,
)
from tests.support.servers import redis_server

SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
LEASE_MS = 600_000
REPEAT_S = 4.0
PASSWORD = "s3cret-of-the-broker"  # noqa: S105 - of no real one
HOSTILE = """<script>document.title='ran'</script>"'><img src=x onerror="document.title='ran'">"""
HOSTILE_ID = f"{HOSTILE}/%2F/../?a=b&c=d#e'\"\\ ünïcödé-👋"
NAMED_ID = "order-4711:timeout"
LONG_BODY = ("<b>0123456789</b>&" * 4000).encode()[: 64 * 1024]

CONFIG = """\
version: 1
store: {{url: "{url}", allow_unfit: [persistence, version]}}
brokers:
  orders: {{type: kafka, bootstrap_servers: ["kafka.shop.internal:9092"]}}
  billing: {{type: rabbitmq, url: "amqp://bridge:{password}@rabbit.shop.internal:5672/"}}
routes:
  order-timeout:
    target: {{broker: orders, topic: order-timeouts}}
    dead_letter: {{broker: orders, topic: order-timeouts-dlt}}
  cart-reminder: {{target: {{broker: orders, topic: cart-reminders}}, remember: 1h}}
  invoice-dunning:
    target: {{broker: billing, exchange: dunning, routing_key: invoice.due}}
    retry: {{max_attempts: 8, backoff: fixed, initial: 30s}}
    shards: 2
  parcel-pickup: {{target: {{broker: orders, topic: parcel-pickup}}, max_delay: 30d}}
  trial-expiry: {{target: {{broker: orders, topic: trial-expiry}}, max_delay: 90d}}
intakes:
  retries:
    source: {{broker: orders, topic: retry-later}}
    route: cart-reminder
    dead_letter: {{broker: orders, topic: retry-later-dlt}}
  invoices:
    source: {{broker: billing, queue: invoices}}
    route: invoice-dunning
    dead_letter: {{broker: billing, exchange: dunning, routing_key: invoice.refused}}
"""


class Scene(NamedTuple):
    """The store and its configuration; `now_ms` is the store's time when it was filled."""

    config: Config
    connection: Connection
    now_ms: int

    def store(self, route: str, id: str = "") -> DelayStore:
        """Return the shard of an id."""
        named = self.config.routes[route]
        return RouteStore.open(self.connection, "duebridge", named).of(id)


@contextmanager
def filled_scene(home: Path) -> Iterator[Scene]:
    """Run a Redis of its own, filled, while workers say how they are."""
    with redis_server(home) as port:
        file = home / "duebridge.yaml"
        url = f"redis://127.0.0.1:{port}/0"
        file.write_text(CONFIG.format(url=url, password=PASSWORD))
        config = load_config(file)
        connection = open_connection(url)
        scene = Scene(config, connection, Workers(connection, "duebridge").now_ms())
        _fill(scene, Producer(config, connection))
        with _workers(scene):
            yield scene
        connection.close()


def _fill(scene: Scene, producer: Producer) -> None:
    for route, some in (
        ("cart-reminder", _many("cart", 90, 60)),
        ("trial-expiry", _many("trial", 40, 5 * 24 * 60)),
        ("invoice-dunning", _many("invoice", 24, 600, has_key=False)),
    ):
        producer.schedule_many(route, some)
    _orders(scene, producer)
    _delivered(scene, producer)
    _dead(scene, producer)
    _retries(scene, producer)
    _hostile(producer)


def _many(name: str, count: int, minutes: int, *, has_key: bool = True) -> Iterator[Envelope]:
    """Envelopes over the next minutes, more of them soon, none at the same instant."""
    for number in range(count):
        share = ((number * 37 % count) / count) ** 1.4
        body = {"kind": name, "number": 1000 + number, "customer": f"c-{number * 7919 % 5000}"}
        yield Envelope.new(
            json.dumps(body).encode(),
            id=f"{name}-{1000 + number}",
            delay=f"{round(5_000 + share * minutes * MINUTE_MS)}ms",
            key=f"customer-{number * 7919 % 5000}".encode() if has_key else None,
            headers={"kind": name, "tenant": f"shop-{number % 4}"},
        )


ORDER = {
    "order": 4711,
    "customer": "c-1093",
    "total": 129.90,
    "currency": "EUR",
    "items": [
        {"sku": "LAMP-20", "title": "Desk lamp", "count": 1},
        {"sku": "BULB-04", "title": "Bulb, warm white", "count": 4},
    ],
    "reserved_until": "2026-03-01T10:15:00Z",
}


def _orders(scene: Scene, producer: Producer) -> None:
    """The named envelope, due ones that wait for a held target, and one in hand."""
    body = json.dumps(ORDER).encode()
    headers = {
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "tenant": "shop-2",
    }
    properties: dict[str, Any] = {"content_type": "application/json"}
    producer.schedule(
        "order-timeout",
        body,
        id=NAMED_ID,
        delay="42m",
        key=b"customer-1093",
        headers=headers,
        **properties,
    )
    producer.schedule_many("order-timeout", _many("order", 60, 60))
    late = [f"order-{number}:timeout" for number in range(4000, 4012)]
    due_now(producer, "order-timeout", late, scene.now_ms - 2 * MINUTE_MS)
    claim = _claimed(scene.store("order-timeout"), len(late))
    asides = [
        SetAside(id=each, delay_ms=HOUR_MS, tag="x" * 8, error=MISSING) for each in claim.ids[:-2]
    ]
    scene.store("order-timeout").set_aside(claim.token, asides)


MISSING = (
    "UnknownTopicOrPartitionError\nThis server does not host this topic-partition: order-timeouts"
)
REFUSED = (
    "ChannelClosedByBroker\n"
    "(403) ACCESS_REFUSED - write access to exchange 'dunning' refused for user 'bridge'"
)
TOO_LARGE = (
    "MessageSizeTooLargeError\n"
    "The request included a message larger than the max message size the server will accept"
)
UNSURE = "KafkaTimeoutError\nno confirm within 15s; the broker may have it"


def _delivered(scene: Scene, producer: Producer) -> None:
    """Some that went out, so that there are rates and a capacity."""
    ids = [f"cart-{number}" for number in range(300)]
    due_now(producer, "cart-reminder", ids)
    store = scene.store("cart-reminder")
    claim = _claimed(store, len(ids))
    store.ack([Ack(each, claim.token) for each in claim.ids])


def _retries(scene: Scene, producer: Producer) -> None:
    """Some that failed once or twice, and wait for their next try."""
    for round_number, minutes in ((1, 0), (2, 9)):
        ids = [f"cart-retry-{number}" for number in range(round_number - 1, 14, round_number)]
        if round_number == 1:
            due_now(producer, "cart-reminder", ids)
        store = scene.store("cart-reminder")
        claim = _claimed(store, len(ids))
        retries = [
            Retry(
                id=each,
                delay_ms=minutes * MINUTE_MS * (number % 5 + 1),
                is_failure=True,
                is_unsure=minutes > 0,
                error=UNSURE,
            )
            for number, each in enumerate(claim.ids)
        ]
        store.retry(claim.token, retries)


def _dead(scene: Scene, producer: Producer) -> None:
    for route, count, reason, error in (
        ("invoice-dunning", 17, Reason.UNAUTHORIZED, REFUSED),
        ("invoice-dunning", 6, Reason.TOO_LARGE, TOO_LARGE),
        ("cart-reminder", 3, Reason.ATTEMPTS_EXHAUSTED, UNSURE),
    ):
        ids = [f"{reason.word}-{number}" for number in range(count)]
        due_now(producer, route, ids)
        for store in RouteStore.open(
            scene.connection, "duebridge", scene.config.routes[route]
        ).shards:
            if (poll := store.promote()[0]).ready:
                claim = store.claim(poll.ready, LEASE_MS)
                burials = [
                    Burial(id=each, reason=reason, is_failure=True, is_unsure=False, error=error)
                    for each in claim.ids
                ]
                store.bury(claim.token, burials)


def _hostile(producer: Producer) -> None:
    """What nobody should send, and somebody will."""
    producer.schedule(
        "trial-expiry",
        LONG_BODY,
        id=HOSTILE_ID,
        delay="30d",
        key=HOSTILE.encode(),
        headers=[
            (HOSTILE, HOSTILE),
            ("bytes", b"\x00\xff<script>"),
            ("bidi", "\u202egnp.exe"),
            ("void", None),
            ("yes", True),
        ],
    )
    producer.schedule("trial-expiry", b"\x00\x01\xfe\xff" * 900, id="binary-1", delay="20d")
    producer.schedule("trial-expiry", None, id="tombstone-1", delay="20d", key=b"k")
    producer.schedule(
        "trial-expiry", b"Dear customer,\nyour trial ends.\n", id="text-1", delay="20d"
    )


def due_now(producer: Producer, route: str, ids: list[str], at_ms: int = 1_767_225_600_000) -> None:
    some = (
        Envelope.new(
            json.dumps({"id": each, "amount": 12.5}).encode(),
            id=each,
            at=at_ms,
            headers={"tenant": "shop-1"},
        )
        for each in ids
    )
    producer.schedule_many(route, some)


def _claimed(store: DelayStore, most: int) -> Claim:
    store.promote()
    return store.claim(most, LEASE_MS)


# --- workers ---

BROKEN = "rabbit.shop.internal:5672: connection refused"


def worker_records(now_ms: int, started_at_ms: int) -> list[WorkerRecord]:
    """Two workers: one holds a target that is missing, the other does not reach RabbitMQ."""
    held = HeldTarget(
        broker="orders",
        target="orders:order-timeouts",
        error=MISSING.replace("\n", ": "),
        since_ms=started_at_ms + 7 * MINUTE_MS,
        is_at_fault=True,
        routes=("order-timeout",),
    )
    routes = ("order-timeout", "cart-reminder", "invoice-dunning", "parcel-pickup", "trial-expiry")
    common: dict[str, Any] = {
        "version": "0.2.0",
        "started_at_ms": started_at_ms,
        "at_ms": now_ms,
        "routes": routes,
    }
    away = LaneRecord(
        "billing",
        False,
        f"AMQPConnectionError: {BROKEN}",
        5000,
        0,
    )
    intakes = (
        IntakeRecord("retries", True, "", 1284),
        IntakeRecord("invoices", False, f"AMQPConnectionError: {BROKEN}", 31),
    )
    return [
        WorkerRecord(
            "bridge-0",
            "bridge-7c9f-x2m4q",
            1,
            lanes=(
                LaneRecord("orders", True, "", 5000, 312),
                LaneRecord("billing", True, "", 1000, 0),
            ),
            held=(held,),
            intakes=intakes,
            **common,
        ),
        WorkerRecord(
            "bridge-1",
            "bridge-7c9f-p8k2d",
            1,
            lanes=(LaneRecord("orders", True, "", 5000, 4988), away),
            **common,
        ),
    ]


@contextmanager
def _workers(scene: Scene) -> Iterator[None]:
    """Repeat the workers' records until the end."""
    workers, over = Workers(scene.connection, "duebridge"), threading.Event()

    def write() -> None:
        for record in worker_records(workers.now_ms(), scene.now_ms - 9 * HOUR_MS // 60):
            workers.write(record)

    def repeat() -> None:
        while not over.wait(REPEAT_S):
            write()

    write()
    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
