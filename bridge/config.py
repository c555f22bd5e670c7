"""The configuration as frozen values, each field with its default; `bridge.config_file` reads YAML.

Durations are written as text ("15m") and kept in ms, sizes as text ("64MiB") and kept in bytes.
The url of the store and what a broker needs to connect keep their references (`${VAR}`): see
`bridge.references`.
"""

import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from bridge.config_fields import (
    Bytes,
    Fault,
    Model,
    Ms,
    Name,
    Options,
    Text,
    Version,
    Whole,
    did_you_mean,
    fault,
    not_yet,
    refuse,
)
from bridge.config_merge import merged_route
from bridge.durations import format_ms
from bridge.envelope import Target

LEASE_MARGIN_MS = 1_000
LEASE_PER_DEADLINE = 1.5
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")  # what Kafka takes


class Store(Model):
    """Where the delay store is."""

    url: Annotated[Text, Field(repr=False)] = "redis://localhost:6379/0"
    namespace: Name = "duebridge"
    durability: Annotated[Literal["async"], not_yet("fsync", "replicated")] = "async"
    allow_unfit: tuple[Literal["version", "eviction", "persistence"], ...] = ()


class KafkaBroker(Model):
    """A Kafka cluster; `options` have Kafka's dotted names."""

    type: Literal["kafka"]
    bootstrap_servers: Annotated[list[Text], Field(min_length=1, repr=False)]
    client: Annotated[Literal["kafka-python"], not_yet("librdkafka")] = "kafka-python"
    options: Options = Field({}, repr=False)


class RabbitBroker(Model):
    """A RabbitMQ server or cluster."""

    type: Literal["rabbitmq"]
    url: Annotated[Text, Field(repr=False)]
    options: Options = Field({}, repr=False)


class MemoryBroker(Model):
    """A broker in memory, for tests."""

    type: Literal["memory"]
    options: Options = Field({}, repr=False)


Broker: TypeAlias = Annotated[
    KafkaBroker | RabbitBroker | MemoryBroker, Field(discriminator="type")
]


class WorkerSettings(Model):
    """The bounds of each lane, and how long a worker may take to publish and to stop."""

    in_flight: Annotated[Whole, Field(ge=1)] = 5000
    in_flight_bytes: Bytes = "64MiB"  # type: ignore[assignment]
    batch: Annotated[Whole, Field(ge=1, le=1000)] = 500
    publish_deadline: Ms = "15s"  # type: ignore[assignment]
    drain: Ms = "20s"  # type: ignore[assignment]


class RetryPolicy(Model):
    """How often, and after what delay, a delivery that failed is tried again.

    With `backoff: fixed` there is no `max` and no `jitter`: inherited ones do not apply, given
    ones are refused, since nobody should believe that they do something (`jitter: none` is true).
    """

    max_attempts: Annotated[Whole, Field(ge=1, le=10_000)] = 5
    backoff: Literal["exponential", "fixed"] = "exponential"
    initial: Ms = "1s"  # type: ignore[assignment]
    max: Ms = "5m"  # type: ignore[assignment]
    jitter: Literal["full", "none"] = "full"

    @model_validator(mode="after")
    def _has_only_what_applies(self) -> Self:
        idle = {"max"} if self.jitter == "none" else {"max", "jitter"}
        if self.backoff == "fixed":
            text = "applies only to backoff: exponential; this one is fixed"
            refuse(self, [((name,), text) for name in sorted(idle & self.model_fields_set)])
        return self


class OnTargetError(Model):
    """How long a route waits for a missing or closed target before it gives envelopes up."""

    hold: Ms = "10m"  # type: ignore[assignment]
    then: Literal["dead_letter"] = "dead_letter"


class TargetSettings(Model):
    """A Kafka topic, or a RabbitMQ exchange and routing key."""

    broker: str
    topic: Annotated[Text, Field(max_length=249)] | None = None
    exchange: Annotated[str, Field(max_length=255)] | None = None
    routing_key: Annotated[str, Field(max_length=255)] | None = None

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        is_kafka = self.topic is not None
        is_amqp = self.exchange is not None or self.routing_key is not None
        if is_kafka == is_amqp:
            got = "both" if is_kafka else "neither"
            raise fault(f"expected either topic, or exchange and routing_key; got {got}")
        return self

    def target(self) -> Target:
        """Return the value that deliveries carry."""
        if self.topic is not None:
            return Target(self.broker, topic=self.topic)
        return Target(self.broker, exchange=self.exchange or "", routing_key=self.routing_key or "")


class RouteSettings(Model):
    """What a route may leave to the defaults."""

    lease: Ms = "30s"  # type: ignore[assignment]
    max_delay: Ms = "365d"  # type: ignore[assignment]
    max_body: Bytes = "256KiB"  # type: ignore[assignment]
    retry: RetryPolicy = RetryPolicy()
    on_target_error: OnTargetError = OnTargetError()
    remember: Ms = "0ms"  # type: ignore[assignment]
    poison: Annotated[Whole, Field(ge=1)] = 5


class Route(RouteSettings):
    """One route: where its envelopes go, where they go when that fails, and how."""

    name: Name
    target: TargetSettings
    dead_letter: TargetSettings | None = None
    allow_targets: tuple[TargetSettings, ...] = ()
    shards: Annotated[Whole, Field(ge=1, le=1024)] = 1

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        refuse(self, self._faults())
        return self

    def _faults(self) -> Iterator[Fault]:
        if self.dead_letter is not None and self.dead_letter.target() == self.target.target():
            yield ("dead_letter",), "expected another target than the route's own"
        for place, allowed in enumerate(self.allow_targets):
            if allowed.broker != self.target.broker:
                text = f"expected the broker of the route's target; got {allowed.broker!r}"
                yield ("allow_targets", place, "broker"), text

    def targets(self) -> dict[tuple[str | int, ...], TargetSettings]:
        """Return every target that the route names, by its place in the route."""
        named = {("target",): self.target, ("dead_letter",): self.dead_letter}
        allowed = {("allow_targets", place): of for place, of in enumerate(self.allow_targets)}
        return {place: of for place, of in (named | allowed).items() if of is not None}


class Config(Model):
    """The whole configuration, defaults merged into every route."""

    version: Version
    store: Store = Store()
    brokers: dict[Name, Broker]
    worker: WorkerSettings = WorkerSettings()
    defaults: RouteSettings = RouteSettings()
    routes: dict[str, Route]

    @model_validator(mode="before")
    @classmethod
    def _merge_defaults(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("routes"), dict):
            return given
        defaults = given.get("defaults")
        if not isinstance(defaults, dict):
            defaults = {}
        routes = {
            name: merged_route(name, defaults, route) for name, route in given["routes"].items()
        }
        return {**given, "routes": routes}

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        refuse(self, [*self._lease_faults(), *self._target_faults()])
        return self

    def _lease_faults(self) -> Iterator[Fault]:
        deadline = self.worker.publish_deadline
        least = math.ceil(LEASE_PER_DEADLINE * deadline) + LEASE_MARGIN_MS
        for name, route in self.routes.items():
            if route.lease >= least:
                continue
            if "lease" in route.model_fields_set:  # its own, or of the defaults block
                text = f"expected at least {format_ms(least)} (1.5 x publish_deadline + 1s)"
                yield ("routes", name, "lease"), f"{text}; got {format_ms(route.lease)}"
            else:
                most = int((route.lease - LEASE_MARGIN_MS) / LEASE_PER_DEADLINE)
                text = f"expected at most {format_ms(most)}, or a lease longer than the default"
                yield ("worker", "publish_deadline"), f"{text}; got {format_ms(deadline)}"

    def _target_faults(self) -> Iterator[Fault]:
        for name, route in self.routes.items():
            if route.name != name:
                yield ("routes", name, "name"), "unknown key, a route's name is its own key"
            for place, target in route.targets().items():
                for key, text in self._faults_of(target, is_glob=place[0] == "allow_targets"):
                    yield ("routes", name, *place, *key), text

    def _faults_of(self, target: TargetSettings, is_glob: bool) -> Iterator[Fault]:
        broker = self.brokers.get(target.broker)
        if broker is None:
            known = ", ".join(sorted(self.brokers)) or "none"
            text = f"expected a broker of this file ({known}); got {target.broker!r}"
            yield ("broker",), text + did_you_mean(target.broker, self.brokers)
        elif broker.type == "kafka" and target.topic is None:
            written = "routing_key" if target.exchange is None else "exchange"
            yield (written,), f"expected topic: broker {target.broker} is of type kafka"
        elif broker.type == "rabbitmq" and target.topic is not None:
            text = f"expected exchange and routing_key: broker {target.broker} is of type rabbitmq"
            yield ("topic",), text
        elif broker.type == "kafka" and not is_glob and not _TOPIC.fullmatch(target.topic or ""):
            text = "expected letters, digits, dots, dashes and underscores"
            yield ("topic",), f"{text}; got {target.topic!r}"
