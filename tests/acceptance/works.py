"""A worker that runs in this process, with memory brokers, and a producer of its namespace."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from duebridge.config.models import Config
from duebridge.producer import Producer
from duebridge.store.server.connection import open_connection
from duebridge.telemetry.spans import Spans
from duebridge.worker.process import Runner
from duebridge_connectors.memory import MemoryPublisher
from tests.acceptance.site import memory_config

WITHIN_S = 30.0


class Works:
    """A worker with the brokers `a` and `b`, and routes to `broker/topic`."""

    worker: ClassVar[dict[str, Any]] = {"batch": 10, "in_flight": 40}

    def __init__(
        self, url: str, routes: dict[str, str], tracing: Spans | None = None, **route: Any
    ) -> None:
        self.namespace = f"test-{secrets.token_hex(6)}"
        self.publishers = {"a": MemoryPublisher(), "b": MemoryPublisher()}
        self.config = self.configured(routes, **route)
        self.url = url
        self.connection = open_connection(url)
        self.producer = Producer(self.config, self.connection)
        self.runner = Runner(self.config, open_connection(url), self.publishers, tracing=tracing)

    def configured(
        self, routes: dict[str, str], allow_absent: Sequence[str] = (), **fields: Any
    ) -> Config:
        """Return a configuration; `fields` are of each route."""
        written = {
            name: {"target": dict(zip(("broker", "topic"), to.split("/"), strict=True)), **fields}
            for name, to in routes.items()
        }
        return memory_config(
            written,
            store={"namespace": self.namespace},
            brokers={name: {"type": "memory"} for name in self.publishers},
            worker=self.worker,
            allow_absent=list(allow_absent),
        )

    def schedule(self, *ids: str) -> None:
        """Schedule envelopes of the route `r`, due at once."""
        for each in ids:
            self.producer.schedule("r", b"body", id=each, delay="1ms")

    def arrived(self, broker: str = "a") -> list[tuple[str, str | None]]:
        delivered = self.publishers[broker].delivered
        return [(each.id, each.target.topic) for each in delivered]

    def await_arrivals(self, count: int, broker: str = "a") -> None:
        assert self.publishers[broker].deliveries_arrive(count, WITHIN_S)

    def left(self) -> int:
        return sum(view.store.next().envelopes for view in self.runner.views())


@contextmanager
def started(works: Works) -> Iterator[Works]:
    works.runner.start()
    try:
        yield works
    finally:  # a worker that ran on would deliver and count beside the tests that follow
        for publisher in works.publishers.values():
            publisher.resume()
        works.runner.drain()
        works.connection.close()
