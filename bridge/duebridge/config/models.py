"""The configuration as frozen values with defaults; `duebridge.config.load` reads the YAML.

Durations are written as text ("15m") and kept in ms, sizes as text ("64MiB") and kept in bytes.
The store's url and the settings that a broker connects with keep their references (`${VAR}`), see
`duebridge.config.secrets`. Brokers and targets have the models of their types (`config.brokers`).
"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic.json_schema import SkipJsonSchema

from duebridge.config.brokers import Broker, RouteTarget, with_brokers
from duebridge.config.durability import Durability, DurabilityNeeds, in_words, strictness
from duebridge.config.fields import (
    BodyBytes,
    Bytes,
    Ms,
    Name,
    StoreUrl,
    Version,
    Whole,
    within,
)
from duebridge.config.file_locations import location_faults, unlike_faults
from duebridge.config.intakes import IntakeSettings, due_targets, intake_faults, named_intake
from duebridge.config.serve import Serve
from duebridge.durations import format_ms
from duebridge.envelope import Target
from duebridge.ports.settings import Fault, Model, Options, Text, refuse

LEASE_MARGIN_MS = 1_000
HOUR_MS = 3_600_000
LEASE_PER_DEADLINE = 1.5


class Store(Model):
    """The delay store: where it is, and what its answers promise."""

    url: Annotated[StoreUrl, Field(repr=False)] = "redis://localhost:6379/0"
    """redis[s]://, redis[s]+sentinel://, redis[s]+cluster://, unix://; or a local embedded:DIR."""
    namespace: Name = "duebridge"
    """The prefix of every key, so that several bridges can share one server."""
    durability: Durability = "async"
    """What an accepted envelope survives: async is what the server is set up for."""
    allow_unfit: tuple[Literal["version", "eviction", "persistence", "fsync", "replicas"], ...] = ()
    """Start although the server is unfit in these respects."""


class WorkerSettings(Model):
    """Limits of a worker: what it hands to each broker at once, and how long it may take."""

    in_flight: Annotated[Whole, Field(ge=1)] = 5000
    """Most envelopes that wait for the confirm of one broker."""
    in_flight_bytes: Bytes = "64MiB"  # type: ignore[assignment]
    """Most bytes of bodies that wait for the confirm of one broker."""
    batch: Annotated[Whole, Field(ge=1, le=1000)] = 500
    """Most envelopes that a worker claims from the store in one call."""
    publish_deadline: Annotated[Ms, within("100ms", "1h")] = "15s"  # type: ignore[assignment]
    """How long a publish may wait for its confirm, 100ms to 1h; then it is retried as unsure."""
    drain: Annotated[Ms, within("0ms", "24h")] = "20s"  # type: ignore[assignment]
    """How long a stopping worker waits for confirms of what it has published: at most 24h."""


class RetryPolicy(Model):
    """How often a failed delivery is tried again, and after what delay.

    With `backoff: fixed`, `max` and `jitter` have no effect: inherited ones are dropped, given ones
    are refused (`jitter: none` is accepted).
    """

    max_attempts: Annotated[Whole, Field(ge=1, le=10_000)] = 5
    """Failures after which an envelope is dead. An outage of the broker does not count."""
    backoff: Literal["exponential", "fixed"] = "exponential"
    """exponential doubles the delay with each retry; fixed repeats `initial`."""
    initial: Ms = "1s"  # type: ignore[assignment]
    """The delay before the first retry."""
    max: Ms = "5m"  # type: ignore[assignment]
    """The longest delay between two tries."""
    jitter: Literal["full", "none"] = "full"
    """full draws each delay between 0 and its length, so that retries do not come all at once."""

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
    """What a route does while its target is missing, closed to us or unroutable."""

    hold: Ms = "10m"  # type: ignore[assignment]
    """How long envelopes wait for a failing target; after that an error makes an envelope dead."""
    then: Literal["dead_letter"] = "dead_letter"
    """Where an envelope goes that ends after `hold`."""


class ColdTier(Model):
    """Files in which envelopes due far ahead wait, instead of in the store's memory."""

    path: Text
    """The directory of the files, the same for all jobs and commands: an absolute path or a URI."""
    options: Options = Field({})
    """How its object store is opened: endpoint, region, keys. Secrets are references."""
    horizon: Ms
    """Envelopes due within this time are in the store. Run `duebridge spark hydrate` more often."""

    @model_validator(mode="after")
    def _is_everywhere_the_same(self) -> Self:
        refuse(self, self._faults())
        return self

    def _faults(self) -> Iterator[Fault]:
        yield from location_faults(self.path, self.options)
        if self.horizon < HOUR_MS:
            yield ("horizon",), f"expected 1h or more; got {format_ms(self.horizon)}"


class RouteSettings(Model):
    """Settings that a route may leave to `defaults`."""

    lease: Ms = "30s"  # type: ignore[assignment]
    """How long a worker may keep an envelope to itself: at least 1.5 x publish_deadline + 1s."""
    max_delay: Ms = "365d"  # type: ignore[assignment]
    """The longest delay; what is due later is refused."""
    max_body: BodyBytes = "256KiB"  # type: ignore[assignment]
    """The largest body; at most 1MiB, which takes the store 4 to 10 ms a call."""
    retry: RetryPolicy = RetryPolicy()
    on_target_error: OnTargetError = OnTargetError()
    remember: Ms = "0ms"  # type: ignore[assignment]
    """How long a delivered id is known, so that a repeat stores nothing; each costs memory."""
    durability: Durability = "async"
    """What an accepted envelope survives, if not the store's durability: a stricter one."""
    poison: Annotated[Whole, Field(ge=1)] = 5
    """Deaths of workers that held only this envelope, after which it is dead."""


class Route(RouteSettings):
    """A route: where its envelopes go, and where they go when that fails."""

    name: Annotated[Name, SkipJsonSchema()]  # its key
    target: RouteTarget
    """The topic, or the exchange and routing key, of due envelopes."""
    dead_letter: RouteTarget | None = None
    """The target of dead envelopes, another than `target`. Without it they stay in the store."""
    allow_targets: tuple[RouteTarget, ...] = ()
    """Targets of the same broker that an envelope may name instead; names may be globs."""
    shards: Annotated[Whole, Field(ge=1, le=1024)] = 1
    """Parts of the route in the store, for 1,000,000 pending envelopes each. Fixed at first use."""
    cold_tier: ColdTier | None = None
    """Files for what is due far ahead; `duebridge spark demote` moves it there."""

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
        allowed = {
            ("allow_targets", place): target for place, target in enumerate(self.allow_targets)
        }
        return {place: target for place, target in (named | allowed).items() if target is not None}


class Config(Model):
    """The whole configuration, with the defaults merged into every route."""

    version: Version
    """The version of this file's form: 1."""
    store: Store = Store()
    brokers: dict[Name, Broker]
    worker: WorkerSettings = WorkerSettings()
    defaults: RouteSettings = RouteSettings()
    routes: dict[str, Route]
    """The routes, by name."""
    intakes: dict[Name, IntakeSettings] = Field({})
    """Queues and topics whose messages are scheduled, by name."""
    serve: Serve = Serve()
    """The HTTP interface of `duebridge serve`."""
    allow_absent: tuple[Name, ...] = ()
    """Routes that this file may leave out although the store holds envelopes of them."""

    @model_validator(mode="before")
    @classmethod
    def _merge_defaults(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("routes"), dict):
            return given
        defaults = given.get("defaults")
        if not isinstance(defaults, dict):
            defaults = {}
        defaults = {**_store_durability(given.get("store")), **defaults}
        routes = {
            name: with_brokers(merged_route(name, defaults, route), given.get("brokers"))
            for name, route in given["routes"].items()
        }
        return {**given, "routes": routes}

    @model_validator(mode="before")
    @classmethod
    def _name_intakes(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("intakes"), dict):
            return given
        intakes = {
            name: named_intake(name, intake, given.get("brokers"))
            for name, intake in given["intakes"].items()
        }
        return {**given, "intakes": intakes}

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        faults = (*self._lease_faults(), *self._name_faults(), *self._absent_faults())
        in_intakes = intake_faults(self.intakes, self.routes, self.brokers)
        in_tiers = unlike_faults(self._tiers())
        refuse(self, [*faults, *self._durability_faults(), *in_intakes, *in_tiers])
        self._permit_due_targets()
        return self

    def _permit_due_targets(self) -> None:
        """Let declared intakes send on what is due: nobody else writes their exchange's name."""
        for name, target in due_targets(self.intakes, self.brokers):
            route = self.routes[name]
            if target not in route.allow_targets:
                allowed = (*route.allow_targets, target)
                self.routes[name] = route.model_copy(update={"allow_targets": allowed})

    @property
    def needs(self) -> DurabilityNeeds:
        """The needs of all durabilities, of the store's and of the routes'."""
        routes = self.routes.values()
        return DurabilityNeeds.of([self.store.durability, *(route.durability for route in routes)])

    def _durability_faults(self) -> Iterator[Fault]:
        least = self.store.durability
        for name, route in self.routes.items():
            if strictness(route.durability) < strictness(least):
                text = f"expected the store's ({in_words(least)}) or a stricter one"
                yield ("routes", name, "durability"), f"{text}; got {in_words(route.durability)}"

    def _tiers(self) -> Iterator[tuple[tuple[str, ...], str, Mapping[str, object]]]:
        for name, route in self.routes.items():
            if (tier := route.cold_tier) is not None:
                yield ("routes", name, "cold_tier", "options"), tier.path, tier.options

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


def _store_durability(store: Any) -> dict[str, Any]:
    """Return the durability that routes inherit; a mistake is reported at the store alone."""
    try:
        durability = Store.model_validate(store or {}).durability
    except ValidationError:
        return {}
    return {"durability": durability}


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
