"""One intake in this process: a queue in memory, a real store, and a dead-letter target."""

import secrets
from collections.abc import Sequence
from copy import copy
from typing import Any

from msgspec.structs import replace

from duebridge.config.broker_access import source_plan
from duebridge.config.models import Config
from duebridge.envelope import Target
from duebridge.intake.intake import IntakeLoop
from duebridge.intake.intake_store import IntakeStore
from duebridge.intake.letters import LetterBox
from duebridge.intake.positions import WantedPositions
from duebridge.ports.publisher import Delivery
from duebridge.ports.source import Arrival, LogPosition
from duebridge.store.positions import StorePositions
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import open_connection
from duebridge.store.wire.replies import Entry
from duebridge_connectors.memory import MemoryPublisher, MemoryQueue, MemorySource

LOG = "box:late:0:1"
DEAD = Target("box", topic="dead")


def intake_config(namespace: str = "n", url: str = "redis://localhost", **intake: Any) -> Config:
    """Two routes of one broker; the intake `in` takes from the queue `q`."""
    route = {"target": {"broker": "box", "exchange": "e", "routing_key": "k"}}
    retry = {"max_attempts": 3, "backoff": "exponential", "initial": "1s", "max": "1h"}
    return Config.model_validate(
        {
            "version": 1,
            "store": {"url": url, "namespace": namespace},
            "brokers": {"box": {"type": "memory"}, "other": {"type": "memory"}},
            "routes": {
                "r": {
                    **route,
                    "dead_letter": {"broker": "box", "topic": "dead"},
                    "allow_targets": [{"broker": "box", "topic": "orders*"}],
                    "retry": retry,
                    "max_delay": "30d",
                    "max_body": "1KiB",
                    "shards": 3,
                },
                "s": route,
            },
            "intakes": {
                "in": {"source": {"broker": "box", "queue": f"q-{namespace}"}, "route": "r"}
                | intake
            },
        }
    )


def placed(
    offset: int,
    body: bytes | None = b"body",
    *,
    key: bytes | None = None,
    message_id: str = "",
    **headers: Any,
) -> Arrival:
    """An arrival of a log, as Kafka's are; those of a stream of RabbitMQ have a message_id."""
    return Arrival(
        body,
        id=f"box:late:0:{offset}:1700000000000",
        key=key,
        message_id=message_id,
        headers=named(headers),
        place=LogPosition(LOG, 0, offset),
        sent_at_ms=1_700_000_000_000,
        origin="orders",
        is_id_unique=True,
    )


def numbered(offset: int, *, key: bytes | None = None, **headers: Any) -> Arrival:
    """An arrival of a log whose broker gives topics no ids."""
    return replace(placed(offset, key=key, **headers), place=None)


def queued(id: str = "m", body: bytes | None = b"body", **headers: Any) -> Arrival:
    """An arrival of a queue, as RabbitMQ's are."""
    return Arrival(body, id=id, headers=named(headers))


def named(headers: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name.replace("_", "-"), value) for name, value in headers.items())


class Entrance:
    """An intake that a test turns by hand."""

    def __init__(self, url: str, **intake: Any) -> None:
        self.namespace = f"test-{secrets.token_hex(6)}"
        self.config = intake_config(self.namespace, url, **intake)
        self.connection = open_connection(url)
        self.publisher = MemoryPublisher()
        self.queue = MemoryQueue.named(f"q-{self.namespace}")
        self.stored_positions = StorePositions(self.connection, self.namespace, "in")
        self.positions = WantedPositions(self.stored_positions)
        self.now_s = 0.0
        self.loop = self._opened()

    def _opened(self) -> IntakeLoop:
        plan = source_plan(self.config, "in")
        store = IntakeStore("in", self.config, self.connection)
        return IntakeLoop(
            "in",
            self.config,
            MemorySource(self.queue, plan),
            store,
            LetterBox(self.publisher, DEAD),
            self.positions,
            lambda: self.now_s,
        )

    def start_again(self, config: Config) -> None:
        """Begin anew with another configuration, as after a kill: nothing in hand is settled."""
        self.config = config
        self.loop = self._opened()

    def beside(self) -> "Entrance":
        """Return another process of the intake, which reads for itself, as one does of a stream."""
        other = copy(self)
        other.queue = MemoryQueue()
        other.positions = WantedPositions(self.stored_positions)
        other.loop = other._opened()
        return other

    def take(self, *arrivals: Arrival) -> int:
        """Put messages into the queue, and turn the intake once."""
        self.queue.put(*arrivals)
        return self.loop.run_once()

    def route(self, name: str = "r") -> RouteStore:
        return RouteStore.open(self.connection, self.namespace, self.config.routes[name])

    def get(self, id: str, route: str = "r") -> Entry | None:
        return self.route(route).of(id).get(id)

    def due_in_ms(self, id: str) -> int:
        entry = self.get(id)
        assert entry is not None
        assert entry.record is not None
        return entry.record.due_at_ms - entry.record.scheduled_at_ms

    def dead(self, route: str = "r") -> list[Entry]:
        pages = [store.list("dead", limit=1000) for store in self.route(route).shards]
        return sorted((entry for page in pages for entry in page.entries), key=lambda of: of.id)

    def ids(self, route: str = "r") -> list[str]:
        pages = [store.list("pending", limit=1000) for store in self.route(route).shards]
        return sorted(entry.id for page in pages for entry in page.entries)

    def letters(self) -> Sequence[Delivery]:
        return self.publisher.delivered

    def reasons(self) -> list[str]:
        return [str(dict(each.headers)["x-dlq-reason"]) for each in self.letters()]

    def close(self) -> None:
        self.connection.close()
