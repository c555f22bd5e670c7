"""The broker type of the entry point `memory`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from duebridge.envelope import Target
from duebridge.ports.broker import BrokerType
from duebridge.ports.checks import Destination, Finding, FindingSubject, ok
from duebridge.ports.settings import (
    AtUse,
    BrokerSettings,
    Model,
    Options,
    ShortText,
    TargetSettings,
    Text,
    fault,
    needs_any,
)
from duebridge.ports.source import Positions, SourcePlan, SourceSettings
from duebridge_connectors.memory.publisher import MemoryPublisher, name_of, open_publisher
from duebridge_connectors.memory.source import MemoryQueue, MemorySource


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


class MemorySourceSettings(SourceSettings):
    """A queue in memory."""

    queue: ShortText
    """Any name; sources of this name in this process share the queue."""


class MemoryDeclaration(Model):
    """The declaration of an intake; nothing is created."""

    exchange: ShortText
    """Any name; due messages go to NAME.due."""


class Memory(BrokerType):
    """The broker type of the entry point `memory`."""

    settings = MemorySettings
    target = MemoryTarget
    source = MemorySourceSettings
    declaration = MemoryDeclaration

    def check_settings(self, settings: Mapping[str, object], publish_deadline_s: float) -> None:
        """Refuse unknown options; see `BrokerType.check_settings`."""
        del publish_deadline_s
        name_of(settings)

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
        takes = [
            ok(FindingSubject.ROUTE, to.place, "the memory broker takes all") for to in destinations
        ]
        return [
            ok(FindingSubject.BROKER, place, "messages live in this process and end with it"),
            *takes,
        ]

    def named_target(self, broker: str, name: str) -> Target:
        """Return the topic of this name."""
        return Target(broker, topic=name)

    def due_target(self, broker: str, declare: Mapping[str, object]) -> Target:
        """Return the exchange NAME.due with any routing key."""
        return Target(broker, exchange=f"{declare['exchange']}.due", routing_key="*")

    def open_source(
        self, settings: Mapping[str, object], plan: SourcePlan, positions: Positions
    ) -> MemorySource:
        """Return a source of the queue that has the name of the plan's."""
        del settings, positions
        return MemorySource(MemoryQueue.named(str(plan.source["queue"])), plan)

    def examine_source(
        self, place: str, settings: Mapping[str, object], plan: SourcePlan, deadline_s: float
    ) -> list[Finding]:
        """Return that it is there; see `BrokerType.examine_source`."""
        del settings, plan, deadline_s
        return [ok(FindingSubject.BROKER, place, "messages live in this process and end with it")]

    def declare_source(self, settings: Mapping[str, object], plan: SourcePlan) -> list[str]:
        """Return the lines of a declaration; nothing is created."""
        del settings
        names = {**plan.source, **(plan.declare or {})}
        return [f"{kind} {name}: in memory" for kind, name in names.items()]


MEMORY = Memory()
