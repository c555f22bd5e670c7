"""The broker type `rabbitmq`: settings, targets and limits. Imports no client."""

from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from duebridge.envelope import Envelope, Headers, Target
from duebridge.errors import EnvelopeError, shown
from duebridge.ports.baseline import BareConsumer, BaselineClient
from duebridge.ports.broker import BrokerType
from duebridge.ports.checks import Destination, Finding
from duebridge.ports.publisher import Publisher
from duebridge.ports.settings import (
    AtUse,
    BrokerSettings,
    DeepOptions,
    ShortText,
    TargetSettings,
    Text,
    fault,
    needs_any,
)
from duebridge.ports.source import Positions, Source, SourcePlan
from duebridge_connectors.rabbitmq import open_publisher
from duebridge_connectors.rabbitmq.permissions import (
    permission_commands,
    source_permission_commands,
)
from duebridge_connectors.rabbitmq.sizes import check_frame
from duebridge_connectors.rabbitmq.source.models import (
    RabbitDeclaration,
    RabbitSourceSettings,
    declaring_intake,
    due_exchange,
)


class RabbitSettings(BrokerSettings):
    """A RabbitMQ server or cluster."""

    type: Literal["rabbitmq"]
    url: AtUse[Text]
    """amqp://user:password@host:port/vhost, or amqps://"""
    options: AtUse[DeepOptions] = Field({})
    """Connection parameters, by pika's names."""


class RabbitTarget(TargetSettings):
    """A RabbitMQ exchange and a routing key."""

    model_config = ConfigDict(json_schema_extra=needs_any("exchange", "routing_key"))

    exchange: ShortText | None = None
    """Its name; "" is the default exchange, where the routing key is a queue's name."""
    routing_key: ShortText | None = None
    """The routing key."""

    @model_validator(mode="after")
    def _has_a_field(self) -> Self:
        if self.exchange is None and self.routing_key is None:
            raise fault("expected exchange and routing_key; got neither")
        return self

    def target(self) -> Target:
        """Return the value that deliveries carry; a field that is left out is empty."""
        names = {"exchange": self.exchange or "", "routing_key": self.routing_key or ""}
        return Target(self.broker, **names)


class RabbitMQ(BrokerType):
    """The broker type of the entry point `rabbitmq`."""

    settings = RabbitSettings
    target = RabbitTarget
    source = RabbitSourceSettings
    declaration = RabbitDeclaration
    has_baseline = True
    event_prefix = "cloudEvents:"
    has_keys = False

    def check_envelope(
        self, envelope: Envelope, headers: Headers, settings: Mapping[str, object]
    ) -> None:
        """Refuse what AMQP lacks: no body, a key, repeated header names; and a frame too large."""
        if envelope.key is not None:
            raise EnvelopeError(
                "key: expected none on RabbitMQ, whose messages have no key; use a target's"
                f" routing_key; got {shown(envelope.key)}"
            )
        self.check_dead_letter(envelope, headers, settings)

    def check_dead_letter(
        self, envelope: Envelope, headers: Headers, settings: Mapping[str, object]
    ) -> None:
        """Do the same, but take a key: RabbitMQ's dead letters have it as a header."""
        if envelope.body is None:
            raise EnvelopeError("body: expected bytes on RabbitMQ; got None")
        names = {name for name, _ in envelope.headers}
        if len(names) < len(envelope.headers):
            got = shown([name for name, _ in envelope.headers])
            raise EnvelopeError(f"headers: expected distinct names on RabbitMQ; got {got}")
        check_frame(envelope, headers, settings)

    def open_publisher(
        self, settings: Mapping[str, object], publish_deadline_s: float
    ) -> Publisher:
        """Return a publisher; see `BrokerType.open_publisher`."""
        return open_publisher(settings, publish_deadline_s)

    def examine(
        self,
        place: str,
        settings: Mapping[str, object],
        destinations: Sequence[Destination],
        deadline_s: float,
    ) -> list[Finding]:
        """Return findings about a server and each target; see `BrokerType.examine`."""
        from duebridge_connectors.rabbitmq.examine import examine

        makers = {each.place: declaring_intake(each.target, each.plans) for each in destinations}
        return examine(place, settings, destinations, deadline_s, makers)

    def permissions(self, settings: Mapping[str, object], targets: Sequence[Target]) -> list[str]:
        """Return a command for `rabbitmqctl`; see `BrokerType.permissions`."""
        return permission_commands(settings, targets)

    def named_target(self, broker: str, name: str) -> Target:
        """Return a queue; see `BrokerType.named_target`."""
        return Target(broker, exchange="", routing_key=name)

    def due_target(self, broker: str, declare: Mapping[str, object]) -> Target:
        """Return any routing key of the exchange for what is due; see `BrokerType.due_target`."""
        return Target(broker, exchange=due_exchange(str(declare["exchange"])), routing_key="*")

    def open_source(
        self, settings: Mapping[str, object], plan: SourcePlan, positions: Positions
    ) -> Source:
        """Return a source; see `BrokerType.open_source`."""
        from duebridge_connectors.rabbitmq.source.rabbit_source import open_source

        return open_source(settings, plan, positions)

    def examine_source(
        self, place: str, settings: Mapping[str, object], plan: SourcePlan, deadline_s: float
    ) -> list[Finding]:
        """Return findings about a queue and a declaration; see `BrokerType.examine_source`."""
        from duebridge_connectors.rabbitmq.source.examining import examine_source

        return examine_source(place, settings, plan, deadline_s)

    def declare_source(self, settings: Mapping[str, object], plan: SourcePlan) -> list[str]:
        """Declare exchanges, queues and a binding; see `BrokerType.declare_source`."""
        from duebridge_connectors.rabbitmq.source.declaring import declare_source

        return declare_source(settings, plan)

    def source_permissions(
        self, settings: Mapping[str, object], plans: Sequence[SourcePlan]
    ) -> list[str]:
        """Return commands for `rabbitmqctl`; see `BrokerType.source_permissions`."""
        return source_permission_commands(settings, plans)

    def open_baseline(self, settings: Mapping[str, object], name: str) -> BaselineClient:
        """Return the baseline client; see `BrokerType.open_baseline`."""
        from duebridge_connectors.rabbitmq.baseline import open_baseline

        return open_baseline(settings, name)

    def open_bare_consumer(self, settings: Mapping[str, object], name: str) -> BareConsumer:
        """Return the bare consumer; see `BrokerType.open_bare_consumer`."""
        from duebridge_connectors.rabbitmq.bare_consumer import RabbitBareConsumer
        from duebridge_connectors.rabbitmq.settings import connection_parameters

        return RabbitBareConsumer(connection_parameters(settings), name)


RABBITMQ = RabbitMQ()
