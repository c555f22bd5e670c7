"""The stage of a benchmark: a scratch target of a broker, scratch namespaces of a store."""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from duebridge.bench.meter import CallCounter, CountedConnection, Meter
from duebridge.config.broker_access import using
from duebridge.config.load import resolved_broker, resolved_store_url
from duebridge.config.models import Config
from duebridge.envelope import Envelope, Target
from duebridge.errors import StoreError
from duebridge.ports.baseline import HEADERS, BareConsumer, BaselineClient
from duebridge.ports.publisher import Delivery, Publisher
from duebridge.runtime import tuned_gc
from duebridge.store.batching import batches
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard, epochs_key, routes_key
from duebridge.store.life import RouteLife
from duebridge.store.registry import Registry
from duebridge.store.server.connection import open_connection
from duebridge.worker.process import Runner

ROUTE = "r"
BODY_BYTES = 200
WARM_UP = 1000
FILL_ROWS = 5000
MAX_DELAY_MS = 365 * 86_400_000
DELIVERED_WITHIN_S = 300.0
LOOK_EVERY_S = 0.005

OpenPublishers = Callable[[Config, ExitStack], dict[str, Publisher]]


class BenchSetting(NamedTuple):
    """The configuration whose store and brokers are measured, and the opener of publishers."""

    config: Config
    open_publishers: OpenPublishers


def bodies(count: int) -> list[bytes]:
    """Return random bodies, which do not compress."""
    return [secrets.token_bytes(BODY_BYTES) for _ in range(count)]


class Stage:
    """A store, and one of the brokers with a scratch target; `broker` is its name.

    The target and every namespace are deleted when the stage is closed.
    """

    def __init__(self, setting: BenchSetting, broker: str, stack: ExitStack) -> None:
        self.broker = broker
        self._setting = setting
        self._url = resolved_store_url(setting.config)
        self._calls = CallCounter()
        self.connection = self._connect()
        stack.callback(self.connection.close)
        self.connection.load_scripts()
        self.meter = Meter(self.connection, self._calls)
        settings = resolved_broker(setting.config, broker)
        with using(setting.config, broker) as kind:
            self.baseline: BaselineClient = kind.open_baseline(settings, scratch_name())
        stack.callback(self.baseline.close)
        self._stack = stack
        self._lives: dict[str, RouteLife] = {}

    def open_bare_consumer(self, stack: ExitStack) -> BareConsumer:
        """Return a bare consumer with a scratch queue or topic of its own."""
        settings = resolved_broker(self._setting.config, self.broker)
        with using(self._setting.config, self.broker) as kind:
            opened = kind.open_bare_consumer(settings, scratch_name())
        stack.callback(opened.close)
        return opened

    def _connect(self) -> CountedConnection:
        return CountedConnection(open_connection(self._url), self._calls)

    def namespace(self) -> str:
        """Return a new namespace, deleted when the stage is closed."""
        name = scratch_name()
        self._stack.callback(self.delete, name)
        return name

    def store(self, namespace: str, number: int = 0) -> DelayStore:
        """Return a shard of the scratch route."""
        shard = Shard(namespace, ROUTE, number)
        return DelayStore(self.connection, shard, life=self._life(namespace))

    def _life(self, namespace: str) -> RouteLife:
        if namespace not in self._lives:
            registry = Registry(self.connection, namespace)
            self._lives[namespace] = RouteLife(registry, ROUTE, 1, registers=True)
        return self._lives[namespace]

    def now_ms(self, namespace: str) -> int:
        """Return the store's clock."""
        return self.store(namespace).next().now_ms

    def schedule(self, namespace: str, contents: Sequence[bytes], due_ms: Sequence[int]) -> None:
        """Schedule bodies, each due at its instant."""
        store = self.store(namespace)
        pairs = zip(contents, due_ms, strict=True)
        envelopes = (Envelope.new(body, at=due) for body, due in pairs)
        for some in batches(envelopes, lambda envelope: len(envelope.body or b"")):
            store.schedule(some, max_delay_ms=MAX_DELAY_MS)

    def fill(self, namespace: str, count: int) -> None:
        """Fill a namespace up to `count` pending envelopes that do not become due here."""
        pending = self.store(namespace).next().pending
        far_ms = self.now_ms(namespace) + MAX_DELAY_MS // 2
        for first in range(pending, count, FILL_ROWS):
            some = min(FILL_ROWS, count - first)
            self.schedule(namespace, bodies(some), range(far_ms + first, far_ms + first + some))

    @contextmanager
    def running(
        self,
        namespace: str,
        wrap: Callable[[Publisher], Publisher] = lambda publisher: publisher,
        shards: int = 1,
    ) -> Iterator["RunningWorker"]:
        """Give a worker of the scratch route, warmed up but not started; drain it at the end."""
        config = self.config(namespace, shards)
        with ExitStack() as stack:
            stack.enter_context(tuned_gc())
            opened = self._setting.open_publishers(config, stack)
            publishers = {name: wrap(publisher) for name, publisher in opened.items()}
            publishers[self.broker].publish(self._warm_up())
            running = RunningWorker(Runner(config, self._connect(), publishers))
            yield running
            running.drain()

    def _warm_up(self) -> list[Delivery]:
        target = Target(self.broker, **self.baseline.target)
        return [Delivery("warm-up", target, body, headers=HEADERS) for body in bodies(WARM_UP)]

    def config(
        self, namespace: str, shards: int = 1, intakes: Mapping[str, object] | None = None
    ) -> Config:
        """Return the configuration of the scratch route."""
        given = self._setting.config
        return Config.model_validate(
            {
                "version": 1,
                "store": given.store.model_copy(update={"namespace": namespace}),
                "brokers": {self.broker: given.brokers[self.broker]},
                "worker": given.worker,
                "routes": {
                    ROUTE: {
                        "target": {"broker": self.broker, **self.baseline.target},
                        "shards": shards,
                    }
                },
                "intakes": intakes or {},
            }
        )

    def journal_bytes(self, namespace: str) -> int:
        """Return the memory of a namespace's journal."""
        client: Any = self.connection.client
        journal = self.store(namespace).shard.key("journal")
        return int(client.memory_usage(journal, samples=0) or 0)

    def delete(self, namespace: str, shards: int = 1) -> None:
        """Delete a namespace."""
        client: Any = self.connection.client
        client.unlink(routes_key(namespace), epochs_key(namespace))
        for number in range(shards):
            client.unlink(*self.store(namespace, number).shard.keys())


class RunningWorker:
    """Runs a worker process's runner in this process."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._is_started = False

    def start(self) -> None:
        """Start delivering."""
        self._is_started = True
        self._runner.start()

    def wait_settled(self, count: int) -> None:
        """Return once `count` are confirmed and nothing is in flight; does not ask the store.

        Raises `StoreError` after `DELIVERED_WITHIN_S`.
        """
        give_up_at = time.monotonic() + DELIVERED_WITHIN_S
        lanes = self._runner.lanes.values()
        while sum(lane.confirms for lane in lanes) < count or any(lane.in_flight for lane in lanes):
            if time.monotonic() > give_up_at:
                raise StoreError(f"bench: not {count} delivered within {DELIVERED_WITHIN_S:g} s")
            time.sleep(LOOK_EVERY_S)

    def drain(self) -> None:
        """Drain the worker."""
        if self._is_started:
            self._runner.drain()


def scratch_name() -> str:
    """Return a unique name."""
    return f"duebridge-bench-{secrets.token_hex(6)}"
