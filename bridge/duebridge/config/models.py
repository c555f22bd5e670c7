"""The configuration as frozen values with defaults; `duebridge.config.load` reads the YAML.

Durations are written as text ("15m") and kept in ms, sizes as text ("64MiB") and kept in bytes.
The store's url and the settings that a broker connects with keep their references (`${VAR}`), see
`duebridge.config.secrets`. Brokers and targets have the models of their types (`config.brokers`).
"""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from duebridge.config.brokers import Broker, RouteTarget, with_brokers
from duebridge.config.fields import (
    BodyBytes,
    Bytes,
    Ms,
    Name,
    StoreUrl,
    Version,
    Whole,
    not_yet,
)
from duebridge.durations import format_ms
from duebridge.envelope import Target
from duebridge.ports.settings import Fault, Model, Text, refuse

LEASE_MARGIN_MS = 1_000
HOUR_MS = 3_600_000
LEASE_PER_DEADLINE = 1.5


class Store(Model):
    """Where the delay store is."""

    url: Annotated[StoreUrl, Field(repr=False)] = "redis://localhost:6379/0"
    """redis:// rediss:// unix:// redis+cluster://, or embedded:DIR for a server of its own."""
    namespace: Name = "duebridge"
    """The first part of every key: two bridges may share one server."""
    durability: Annotated[Literal["async"], not_yet("fsync", "replicated")] = "async"
    """What an accepted envelope survives."""
    allow_unfit: tuple[Literal["version", "eviction", "persistence"], ...] = ()
    """Go on where the server is unfit in these."""


class WorkerSettings(Model):
    """The bounds of each lane, and how long a worker may take to publish and to stop."""

    in_flight: Annotated[Whole, Field(ge=1)] = 5000
    """Envelopes handed to the broker and not yet confirmed."""
    in_flight_bytes: Bytes = "64MiB"  # type: ignore[assignment]
    """The same in bytes of bodies."""
    batch: Annotated[Whole, Field(ge=1, le=1000)] = 500
    """The most envelopes in one claim."""
    publish_deadline: Ms = "15s"  # type: ignore[assignment]
    """After it a publish counts as of unknown outcome."""
    drain: Ms = "20s"  # type: ignore[assignment]
    """How long a stopping worker waits for what is in flight."""


class RetryPolicy(Model):
    """How often, and after what delay, a delivery that failed is tried again.

    With `backoff: fixed`, `max` and `jitter` have no effect: inherited ones are dropped, given ones
    are refused (`jitter: none` is accepted).
    """

    max_attempts: Annotated[Whole, Field(ge=1, le=10_000)] = 5
    """Definite failures until an envelope is dead; an outage of the broker is none."""
    backoff: Literal["exponential", "fixed"] = "exponential"
    """Whether the delay doubles with each retry, or stays what it is."""
    initial: Ms = "1s"  # type: ignore[assignment]
    """The first delay."""
    max: Ms = "5m"  # type: ignore[assignment]
    """The longest delay."""
    jitter: Literal["full", "none"] = "full"
    """full: the delay is drawn between nothing and itself."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        refuse(self, self._faults())
        return self

    def _faults(self) -> Iterator[Fault]:
        idle = {"max"} if self.jitter == "none" else {"max", "jitter"}
        if self.backoff == "fixed":
            for name in sorted(idle & self.model_fields_set):
                yield (name,), "applies only to backoff: exponential; this one is fixed"
        elif self.initial > self.max:
            text = f"expected at most max ({format_ms(self.max)}); got {format_ms(self.initial)}"
            yield ("initial",), text


class OnTargetError(Model):
    """How long a route waits for a missing or closed target before it gives envelopes up."""

    hold: Ms = "10m"  # type: ignore[assignment]
    """Until then one envelope a second tries; after it each target error ends its envelope."""
    then: Literal["dead_letter"] = "dead_letter"
    """What becomes of an envelope after `hold`."""


class ColdTier(Model):
    """Where envelopes wait that are due far ahead: files, instead of the store's memory."""

    path: Text
    """A directory that all jobs and commands see alike: absolute, or a URI such as s3://."""
    horizon: Ms
    """What is due sooner is in the store; `duebridge spark hydrate` has to run more often."""

    @model_validator(mode="after")
    def _is_everywhere_the_same(self) -> Self:
        refuse(self, self._faults())
        return self

    def _faults(self) -> Iterator[Fault]:
        if not (self.path.startswith("/") or "://" in self.path):
            yield ("path",), f"expected an absolute path, or a URI; got {self.path!r}"
        if self.horizon < HOUR_MS:
            yield ("horizon",), f"expected 1h or more; got {format_ms(self.horizon)}"


class RouteSettings(Model):
    """What a route may leave to the defaults."""

    lease: Ms = "30s"  # type: ignore[assignment]
    """How long a worker may hold an envelope: at least 1.5 x publish_deadline + 1s."""
    max_delay: Ms = "365d"  # type: ignore[assignment]
    """Longer delays are refused."""
    max_body: BodyBytes = "256KiB"  # type: ignore[assignment]
    """Larger bodies are refused; at most 1MiB, which takes the store 4 to 10 ms a call."""
    retry: RetryPolicy = RetryPolicy()
    on_target_error: OnTargetError = OnTargetError()
    remember: Ms = "0ms"  # type: ignore[assignment]
    """How long an id is known after its delivery; it costs memory."""
    poison: Annotated[Whole, Field(ge=1)] = 5
    """Bury an envelope after so many workers died with it alone."""


class Route(RouteSettings):
    """One route: where its envelopes go, where they go when that fails, and how."""

    name: Annotated[Name, SkipJsonSchema()]  # its key
    target: RouteTarget
    """Where due envelopes go."""
    dead_letter: RouteTarget | None = None
    """Where exhausted ones go; without it they stay in the store."""
    allow_targets: tuple[RouteTarget, ...] = ()
    """Where an envelope may ask to go instead; names may be globs."""
    shards: Annotated[Whole, Field(ge=1, le=1024)] = 1
    """Fixed when the route is first used."""
    cold_tier: ColdTier | None = None
    """Keeps what is due far ahead out of the store's memory; `duebridge spark demote` moves it."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        refuse(self, self._faults())
        return self

    def _faults(self) -> Iterator[Fault]:
        # A target without fields could not be read, since its broker is a mistake of its own.
        if self.dead_letter == self.target and self.target.fields:
            yield ("dead_letter",), "expected another target than the route's own"
        for place, allowed in enumerate(self.allow_targets):
            if allowed.broker != self.target.broker:
                text = f"expected the broker of the route's target; got {allowed.broker!r}"
                yield ("allow_targets", place, "broker"), text
        if self.cold_tier is not None and self.cold_tier.horizon >= self.max_delay:
            text = f"expected less than max_delay ({format_ms(self.max_delay)})"
            yield ("cold_tier", "horizon"), f"{text}; got {format_ms(self.cold_tier.horizon)}"

    def targets(self) -> dict[tuple[str | int, ...], Target]:
        """Return every target that the route names, by its place in the route."""
        named = {("target",): self.target, ("dead_letter",): self.dead_letter}
        allowed = {("allow_targets", place): of for place, of in enumerate(self.allow_targets)}
        return {place: of for place, of in (named | allowed).items() if of is not None}


class Config(Model):
    """The whole configuration, defaults merged into every route."""

    version: Version
    """Of the form of this file."""
    store: Store = Store()
    brokers: dict[Name, Broker]
    worker: WorkerSettings = WorkerSettings()
    defaults: RouteSettings = RouteSettings()
    routes: dict[str, Route]
    """By name."""
    allow_absent: tuple[Name, ...] = ()
    """Routes that may be left out of this file while the store holds envelopes of them."""

    @model_validator(mode="before")
    @classmethod
    def _merge_defaults(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("routes"), dict):
            return given
        defaults = given.get("defaults")
        if not isinstance(defaults, dict):
            defaults = {}
        routes = {
            name: with_brokers(merged_route(name, defaults, route), given.get("brokers"))
            for name, route in given["routes"].items()
        }
        return {**given, "routes": routes}

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        refuse(self, [*self._lease_faults(), *self._name_faults(), *self._absent_faults()])
        return self

    def _absent_faults(self) -> Iterator[Fault]:
        for place, name in enumerate(self.allow_absent):
            if name in self.routes:
                text = f"expected a route that is not in this file; got {name!r}"
                yield ("allow_absent", place), text

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

    def _name_faults(self) -> Iterator[Fault]:
        for name, route in self.routes.items():
            if route.name != name:
                yield ("routes", name, "name"), "unknown key, a route's name is its own key"


_BLOCKS = ("retry", "on_target_error")
_NOT_WITH_FIXED = {"max", "jitter"}


def merged_route(name: str, defaults: dict[str, Any], given: Any) -> Any:
    """Return a route over the defaults, its `retry` and `on_target_error` field by field.

    What the route inherits and does not apply, `max` and `jitter` with `backoff: fixed`, is left
    out; what it gives itself stays, for the check to refuse. A value that is no mapping stays too.
    """
    given = {} if given is None else given
    if not isinstance(given, dict):
        return given
    merged = {**defaults, "name": name, **given}
    for block in _BLOCKS:
        if isinstance(defaults.get(block), dict) and isinstance(merged[block], dict | None):
            merged[block] = {**defaults[block], **(merged[block] or {})}
    if isinstance(given.get("retry"), dict):
        merged["retry"] = _without_idle(merged["retry"], given["retry"])
    return merged


def _without_idle(retry: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    if retry.get("backoff") != "fixed":
        return retry
    return {key: retry[key] for key in retry if key in given or key not in _NOT_WITH_FIXED}
