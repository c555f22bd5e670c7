"""The broker type `memory`, a test double that confirms and keeps deliveries."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from duebridge.envelope import Target
from duebridge.errors import ConfigError
from duebridge.ports.broker import BrokerType
from duebridge.ports.checks import About, Destination, Finding, ok
from duebridge.ports.publisher import CONFIRMED, BrokerUnavailable, Delivery, Outcome, Verdict
from duebridge.ports.settings import (
    AtUse,
    BrokerSettings,
    Options,
    ShortText,
    TargetSettings,
    Text,
    fault,
    needs_any,
)

__all__ = ["MEMORY", "MemoryPublisher", "Script", "open_publisher"]

Script = Callable[[Delivery], Outcome | None]

_NOT_AVAILABLE = Outcome(
    Verdict.UNAVAILABLE, error_class="MemoryPublisher", error_message="not available"
)
_UNANSWERED = Outcome(
    Verdict.INDETERMINATE, error_class="MemoryPublisher", error_message="paused past the deadline"
)


class MemoryPublisher:
    """A `Publisher` without a broker. Thread-safe.

    `is_available` may be set to False: then every outcome is UNAVAILABLE, and `ping` raises
    `BrokerUnavailable`.
    """

    _named: ClassVar[dict[str, "MemoryPublisher"]] = {}
    _named_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, publish_deadline_s: float = 15.0) -> None:
        self.is_available = True
        self._deadline_s = publish_deadline_s
        self._changed = threading.Condition()
        self._delivered: list[Delivery] = []
        self._script: Script = _confirm
        self._waiting = 0
        self._is_paused = False
        self._is_closed = False

    @classmethod
    def named(cls, name: str) -> "MemoryPublisher":
        """Return this process's publisher with this name."""
        with cls._named_lock:
            return cls._named.setdefault(name, cls())

    @property
    def delivered(self) -> list[Delivery]:
        """A copy of the confirmed deliveries, oldest first."""
        with self._changed:
            return list(self._delivered)

    @property
    def waiting(self) -> int:
        """The number of deliveries that `pause` holds."""
        with self._changed:
            return self._waiting

    def script(self, script: Script) -> None:
        """Ask `script` for the outcome of each delivery from now on; its None means confirmed."""
        self._script = script

    def pause(self) -> None:
        """Make every `publish` from now on wait for `resume`, at most the publish deadline."""
        with self._changed:
            self._is_paused = True

    def resume(self) -> None:
        """End `pause`; publish the held deliveries."""
        with self._changed:
            self._is_paused = False
            self._changed.notify_all()

    def deliveries_arrive(self, count: int, within_s: float) -> bool:
        """Return True as soon as `count` were confirmed since the start, False after `within_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._delivered) >= count, within_s)

    def deliveries_wait(self, count: int, within_s: float) -> bool:
        """Return True as soon as `pause` holds up `count` deliveries, False after `within_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting >= count, within_s)

    def publish(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Return the script's outcome for each delivery; keep the confirmed ones."""
        if self._is_unavailable():
            return [_NOT_AVAILABLE] * len(batch)
        if batch and not self._wait_while_paused(len(batch)):
            return [_UNANSWERED] * len(batch)
        outcomes = [self._script(delivery) or CONFIRMED for delivery in batch]
        self._remember(batch, outcomes)
        return outcomes

    def ping(self) -> None:
        """Raise `BrokerUnavailable` while closed or not available."""
        if self._is_unavailable():
            raise BrokerUnavailable("the memory broker is not available")

    def close(self) -> None:
        """Become unavailable; held deliveries become INDETERMINATE. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def reopen(self, publish_deadline_s: float) -> None:
        """Undo `close`, as a second worker would that connects to the same broker."""
        with self._changed:
            self._deadline_s = publish_deadline_s
            self._is_closed = False

    def _is_unavailable(self) -> bool:
        return self._is_closed or not self.is_available

    def _wait_while_paused(self, size: int) -> bool:
        with self._changed:
            self._waiting += size
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_paused or self._is_closed, self._deadline_s)
            self._waiting -= size
            return not (self._is_paused or self._is_closed)

    def _remember(self, batch: Sequence[Delivery], outcomes: Sequence[Outcome]) -> None:
        with self._changed:
            for delivery, outcome in zip(batch, outcomes, strict=True):
                if outcome.verdict is Verdict.CONFIRMED:
                    self._delivered.append(delivery)
            self._changed.notify_all()


def _confirm(_: Delivery) -> None:
    return None


class MemorySettings(BrokerSettings):
    """A broker in memory, for tests."""

    type: Literal["memory"]
    options: AtUse[Options] = Field({})
    """`name`: the publisher is then the same one in the whole process."""


class MemoryTarget(TargetSettings):
    """A target in memory: a topic, or an exchange and a routing key, as other brokers have them."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [needs_any("topic"), needs_any("exchange", "routing_key")]}
    )

    topic: Annotated[Text, Field(max_length=249)] | None = None
    """Any name."""
    exchange: ShortText | None = None
    """Any name."""
    routing_key: ShortText | None = None
    """Any name."""

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        has_topic = self.topic is not None
        if has_topic == (self.exchange is not None or self.routing_key is not None):
            got = "both" if has_topic else "neither"
            raise fault(f"expected either topic, or exchange and routing_key; got {got}")
        return self

    def target(self) -> Target:
        """Return the value that deliveries carry."""
        if self.topic is not None:
            return Target(self.broker, topic=self.topic)
        names = {"exchange": self.exchange or "", "routing_key": self.routing_key or ""}
        return Target(self.broker, **names)


class Memory(BrokerType):
    """The broker type of the entry point `memory`."""

    settings = MemorySettings
    target = MemoryTarget

    def check_settings(self, settings: Mapping[str, object], publish_deadline_s: float) -> None:
        """Refuse unknown options; see `BrokerType.check_settings`."""
        del publish_deadline_s
        _name_of(settings)

    def open_publisher(
        self, settings: Mapping[str, object], publish_deadline_s: float
    ) -> MemoryPublisher:
        """Return a publisher; see `open_publisher`."""
        return open_publisher(settings, publish_deadline_s)

    def examine(
        self,
        place: str,
        settings: Mapping[str, object],
        destinations: Sequence[Destination],
        deadline_s: float,
    ) -> list[Finding]:
        """Return that it takes everything; see `BrokerType.examine`."""
        del settings, deadline_s
        takes = [ok(About.ROUTE, to.place, "the memory broker takes all") for to in destinations]
        return [ok(About.BROKER, place, "is in this process: nothing of it outlives it"), *takes]


MEMORY = Memory()


def open_publisher(settings: Mapping[str, object], publish_deadline_s: float) -> MemoryPublisher:
    """Return a publisher for a broker of `type: memory`.

    With a `name` among the options it is `MemoryPublisher.named(name)`, the same one in the whole
    process, so that a test reaches the publisher that a worker has opened; without, a new one.

    Raises `ConfigError` for any other option.
    """
    name = _name_of(settings)
    publisher = MemoryPublisher() if name is None else MemoryPublisher.named(name)
    publisher.reopen(publish_deadline_s)
    return publisher


def _name_of(settings: Mapping[str, object]) -> str | None:
    options = settings.get("options", {})
    if not isinstance(options, Mapping):
        raise ConfigError(f"options: expected a mapping; got {type(options).__name__}")
    if unknown := sorted(options.keys() - {"name"}):
        raise ConfigError(f"options.{unknown[0]}: unknown option; a memory broker has name alone")
    return str(options["name"]) if "name" in options else None
