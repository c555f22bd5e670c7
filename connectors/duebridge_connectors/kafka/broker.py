"""The broker type `kafka`: settings, targets and limits. Imports no client."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from duebridge.envelope import Envelope, Headers, Target
from duebridge.errors import EnvelopeError
from duebridge.ports.baseline import BareConsumer, BaselineClient
from duebridge.ports.broker import BrokerType
from duebridge.ports.checks import Destination, Finding
from duebridge.ports.publisher import Publisher
from duebridge.ports.settings import AtUse, BrokerSettings, Fault, Options, TargetSettings, Text
from duebridge.ports.source import Positions, Source, SourcePlan
from duebridge_connectors.kafka import import_client, open_publisher
from duebridge_connectors.kafka.checks.permissions import acl_commands, source_acl_commands
from duebridge_connectors.kafka.checks.topics import EXPECTED, is_topic
from duebridge_connectors.kafka.headers import lacking_properties
from duebridge_connectors.kafka.sizes import check_size
from duebridge_connectors.kafka.source import open_source
from duebridge_connectors.kafka.source.settings import KafkaSourceSettings


class KafkaSettings(BrokerSettings):
    """A Kafka cluster."""

    type: Literal["kafka"]
    bootstrap_servers: AtUse[Annotated[list[Text], Field(min_length=1)]]
    """The first servers to ask, as host:port; an item may list several with commas."""
    client: Literal["kafka-python", "librdkafka"] = "kafka-python"
    """The client library that publishes."""
    options: AtUse[Options] = Field({})
    """The client's options, by Kafka's own dotted names."""


class KafkaTarget(TargetSettings):
    """A Kafka topic."""

    topic: Annotated[Text, Field(max_length=249)]
    """The topic's name."""

    def faults(self) -> Iterator[Fault]:
        """Yield a fault for an invalid topic name."""
        if not is_topic(self.topic):
            yield ("topic",), f"expected {EXPECTED}; got {self.topic!r}"


class Kafka(BrokerType):
    """The broker type of the entry point `kafka`."""

    settings = KafkaSettings
    target = KafkaTarget
    source = KafkaSourceSettings
    has_baseline = True

    def check_envelope(
        self, envelope: Envelope, headers: Headers, settings: Mapping[str, object]
    ) -> None:
        """Refuse a tombstone without a key, properties that Kafka lacks, and a record too large."""
        if lacking := lacking_properties(envelope.properties):
            got = ", ".join(lacking)
            raise EnvelopeError(f"properties: expected only content_type on Kafka; got {got}")
        self.check_dead_letter(envelope, headers, settings)

    def check_dead_letter(
        self, envelope: Envelope, headers: Headers, settings: Mapping[str, object]
    ) -> None:
        """Do the same, but take any property: Kafka's dead letters have them as headers."""
        if envelope.body is None and envelope.key is None:
            raise EnvelopeError("body: expected a key beside a body of None, which deletes a key")
        check_size(envelope, headers, settings)

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
        """Return findings about a cluster and each topic; see `BrokerType.examine`."""
        import_client()
        from duebridge_connectors.kafka.checks.examine import examine

        return examine(place, settings, destinations, deadline_s)

    def permissions(self, settings: Mapping[str, object], targets: Sequence[Target]) -> list[str]:
        """Return commands for `kafka-acls`; see `BrokerType.permissions`."""
        return acl_commands(settings, targets)

    def named_target(self, broker: str, name: str) -> Target:
        """Return the topic of this name; see `BrokerType.named_target`."""
        return Target(broker, topic=name)

    def open_source(
        self, settings: Mapping[str, object], plan: SourcePlan, positions: Positions
    ) -> Source:
        """Return a member of the group, which keeps positions at the broker."""
        del positions
        import_client()
        return open_source(settings, plan)

    def examine_source(
        self, place: str, settings: Mapping[str, object], plan: SourcePlan, deadline_s: float
    ) -> list[Finding]:
        """Return findings about topic and group; see `BrokerType.examine_source`."""
        import_client()
        from duebridge_connectors.kafka.checks.examine import examine_source

        return examine_source(place, settings, plan, deadline_s)

    def source_permissions(
        self, settings: Mapping[str, object], plans: Sequence[SourcePlan]
    ) -> list[str]:
        """Return commands for `kafka-acls`; see `BrokerType.source_permissions`."""
        return source_acl_commands(settings, plans)

    def open_baseline(self, settings: Mapping[str, object], name: str) -> BaselineClient:
        """Return the baseline client; see `BrokerType.open_baseline`."""
        import_client()
        from duebridge_connectors.kafka.baseline import open_baseline

        return open_baseline(settings, name)

    def open_bare_consumer(self, settings: Mapping[str, object], name: str) -> BareConsumer:
        """Return the bare consumer; see `BrokerType.open_bare_consumer`."""
        from duebridge_connectors.kafka.bare_consumer import open_bare_consumer

        return open_bare_consumer(settings, name)


KAFKA = Kafka()
