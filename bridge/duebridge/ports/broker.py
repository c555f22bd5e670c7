"""The port that a connector implements: one `BrokerType`, found by an entry point.

    [project.entry-points."duebridge.brokers"]
    file = "file_connector.broker:FILE"

The entry point's name is the `type` in the configuration. Every process whose configuration
names the type loads the object, including producers: import the broker's client only inside the
methods that need it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from duebridge.envelope import Envelope, Headers, Target
from duebridge.ports.baseline import BareConsumer, BaselineClient
from duebridge.ports.checks import Destination, Finding
from duebridge.ports.publisher import Publisher
from duebridge.ports.settings import BrokerSettings, Model, TargetSettings
from duebridge.ports.source import Positions, Source, SourcePlan, SourceSettings

MAX_MESSAGE_HEADER_BYTES = 64 * 1024  # names and values, as `header_bytes` counts them


class BrokerType(ABC):
    """A type of broker: its settings, checks and clients.

    The `settings` that methods receive are those of `brokers.NAME` with defaults applied and all
    references resolved. A worker's are resolved again whenever they are read: read them at each
    connect, and keep the last ones where that raises `ConfigError`. Let the `ImportError` of a
    missing client propagate: the caller tells the user which package to install.
    """

    settings: ClassVar[type[BrokerSettings]]
    """The model of `brokers.NAME`."""
    target: ClassVar[type[TargetSettings]]
    """The model of a target."""
    source: ClassVar[type[SourceSettings] | None] = None
    """The model of `intakes.NAME.source`; None where there are no intakes of this type."""
    declaration: ClassVar[type[Model] | None] = None
    """The model of `intakes.NAME.declare`; None where an intake declares nothing."""
    has_baseline: ClassVar[bool] = False
    """Whether `duebridge bench` can measure the client without the bridge."""
    event_prefix: ClassVar[str] = "ce_"
    """What the headers with a CloudEvent's attributes begin with, by the protocol's binding."""
    has_keys: ClassVar[bool] = True
    """Whether a message has a key, which a CloudEvent's `partitionkey` becomes."""

    def check_envelope(  # noqa: B027 - optional
        self, envelope: Envelope, headers: Headers, settings: Mapping[str, object]
    ) -> None:
        """Raise `EnvelopeError` if a message of this broker cannot carry the envelope.

        `headers` are all that the message will have: the envelope's, then duebridge's with their
        longest values; they have at most `MAX_MESSAGE_HEADER_BYTES`. References in `settings` are
        not resolved, since a producer needs no secret of a broker. Called for every envelope that
        is scheduled: be quick.
        """

    def check_dead_letter(
        self, envelope: Envelope, headers: Headers, settings: Mapping[str, object]
    ) -> None:
        """Raise `EnvelopeError` if a dead letter of this broker cannot carry the envelope.

        The envelope's target may be of another type. By default as `check_envelope`; override it
        where the publisher turns what the broker lacks into `x-dlq-*` headers.
        """
        self.check_envelope(envelope, headers, settings)

    def check_settings(self, settings: Mapping[str, object], publish_deadline_s: float) -> None:
        """Raise `ConfigError` if `open_publisher` would; uses no network.

        The error has a line for each mistake (`MistakeCollector` collects them), which begins with
        the setting: `options.linger.ms: expected ...`. By default this opens a publisher, which
        connects on first use only, and closes it.
        """
        self.open_publisher(settings, publish_deadline_s).close()

    @abstractmethod
    def open_publisher(
        self, settings: Mapping[str, object], publish_deadline_s: float
    ) -> Publisher:
        """Return a publisher that connects on first use. Raises `ConfigError`."""

    @abstractmethod
    def examine(
        self,
        place: str,
        settings: Mapping[str, object],
        destinations: Sequence[Destination],
        deadline_s: float,
    ) -> list[Finding]:
        """Return findings about the broker, located at `place`, and about every destination.

        Read-only: creates, changes and publishes nothing. A broker that does not answer within
        `deadline_s` is a finding. Raises `ConfigError`.
        """

    def permissions(self, settings: Mapping[str, object], targets: Sequence[Target]) -> list[str]:
        """Return the commands that grant a user the least rights to deliver to targets.

        Lines for a shell; those that begin with # are comments. References in `settings` are not
        resolved. Names of targets may be globs. By default there is nothing to grant.
        """
        del settings, targets
        return []

    def named_target(self, broker: str, name: str) -> Target:
        """Return the target that is the topic or queue of this name, where a message came from."""
        raise NotImplementedError

    def due_target(self, broker: str, declare: Mapping[str, object]) -> Target:
        """Return the target of a declared intake's due messages, as a glob for `allow_targets`."""
        raise NotImplementedError

    def open_source(
        self, settings: Mapping[str, object], plan: SourcePlan, positions: Positions
    ) -> Source:
        """Return a source, which connects on first use; requires `source`. Raises `ConfigError`."""
        raise NotImplementedError

    def examine_source(
        self, place: str, settings: Mapping[str, object], plan: SourcePlan, deadline_s: float
    ) -> list[Finding]:
        """Return findings about an intake's source, its right to read it, and its declaration.

        Read-only, as `examine`. Raises `ConfigError`.
        """
        raise NotImplementedError

    def declare_source(self, settings: Mapping[str, object], plan: SourcePlan) -> list[str]:
        """Declare what `plan.declare` names, the source's queue and its dead-letter queue.

        Returns a line for each thing, made or there before; harmless to repeat. Raises
        `BrokerUnavailable`, and `ConfigError` where one is there and differs.
        """
        raise NotImplementedError

    def source_permissions(
        self, settings: Mapping[str, object], plans: Sequence[SourcePlan]
    ) -> list[str]:
        """Return the commands that grant a user the least rights to take in; as `permissions`."""
        del settings, plans
        return []

    def open_baseline(self, settings: Mapping[str, object], name: str) -> BaselineClient:
        """Return a baseline client with a scratch target of this name; requires `has_baseline`.

        Raises `ConfigError` and `BrokerUnavailable`.
        """
        raise NotImplementedError

    def open_bare_consumer(self, settings: Mapping[str, object], name: str) -> BareConsumer:
        """Return a bare consumer of a scratch queue or topic; requires `has_baseline`, `source`.

        Raises `ConfigError` and `BrokerUnavailable`.
        """
        raise NotImplementedError
