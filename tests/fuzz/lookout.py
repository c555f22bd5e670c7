"""A worker's floor whose clock goes from due instant to due instant, whenever they are."""

from typing import Any

from duebridge.config.models import Config
from duebridge.ports.publisher import Publisher
from duebridge.store.connection import Connection
from duebridge.worker.lane import Lane
from tests.acceptance.floor import Floor


class Lookout(Floor):
    """A floor that begins at an instant of the real clock, and may have a real broker."""

    def __init__(
        self,
        connection: Connection,
        config: Config,
        start_ms: int,
        publisher: Publisher | None = None,
    ) -> None:
        self.start_ms = start_ms
        super().__init__(connection, config.store.namespace, config)
        if publisher is not None:
            self.lane = Lane("memory", publisher, config.worker, self.monotonic)
            self.worker = self.new_worker()

    def now_ms(self) -> int:
        return self.start_ms + self.elapsed_ms

    def turn_at(self, instant_ms: int) -> None:
        """Let the clock show this instant, and the worker turn until it finds nothing more."""
        self.turn(max(0, instant_ms - self.now_ms()))


def fuzz_config(namespace: str, routes: dict[str, Any]) -> Config:
    """Routes to a broker of each type; nobody connects to those of Kafka and RabbitMQ."""
    brokers = {
        "memory": {"type": "memory"},
        "kafka": {"type": "kafka", "bootstrap_servers": ["127.0.0.1:1"]},
        "rabbitmq": {"type": "rabbitmq", "url": "amqp://127.0.0.1:1"},
    }
    return Config.model_validate(
        {
            "version": 1,
            "store": {"namespace": namespace},
            "brokers": brokers,
            "defaults": {"max_body": "16KiB"},
            "routes": routes,
        }
    )
