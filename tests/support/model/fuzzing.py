"""How much the fuzz draws, from which seed, and a worker whose clock jumps to due instants.

DUEBRIDGE_FUZZ is the number of cases of each kind, DUEBRIDGE_FUZZ_SEED what they are drawn from.
With DUEBRIDGE_FUZZ_SHRINK=1 a failure is made as small as it gets, which may take minutes.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings

from duebridge.config.models import Config
from duebridge.ports.publisher import Publisher
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.embedded import stop_embedded
from duebridge.worker.lanes.lane import Lane
from tests.support.floor import Floor, InlineExecutor

CASES = int(os.environ.get("DUEBRIDGE_FUZZ", "200"))
SEED = int(os.environ.get("DUEBRIDGE_FUZZ_SEED", "5"))
PHASES = list(Phase) if os.environ.get("DUEBRIDGE_FUZZ_SHRINK") else [Phase.generate]


def fuzz(share: float, of_each: int = 1) -> Callable[[Any], Any]:
    """Draw a share of the kind's cases, where each example holds `of_each` of them."""
    rules = settings(
        max_examples=max(1, round(CASES * share / of_each)),
        deadline=None,
        database=None,  # the seed says it all
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    return lambda test: seed(SEED)(rules(test))


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
            self.lane = Lane(
                "memory", publisher, config.worker, InlineExecutor(), None, self.monotonic
            )
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
    whole = {"version": 1, "store": {"namespace": namespace}, "brokers": brokers}
    return Config.model_validate({**whole, "defaults": {"max_body": "16KiB"}, "routes": routes})


@contextmanager
def embedded(url: str) -> Iterator[Connection]:
    """Give a connection to an embedded store that is stopped at the end."""
    connection = open_connection(url)
    yield connection
    connection.close()
    stop_embedded(Path(url.removeprefix("embedded:")))


def check_no_defect(logs: Iterable[Mapping[str, Any]]) -> None:
    """What a worker logs as unforeseen is a crash that only did not end it."""
    for each in logs:
        is_shunt = each["event"] == "shunt_failed" and each["log_level"] == "error"
        assert each["event"] not in {"batch_failed", "publisher_failed"}, each
        assert not is_shunt, each
