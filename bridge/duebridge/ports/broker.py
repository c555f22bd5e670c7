"""The port that a connector implements: one `BrokerType`, found by an entry point.

    [project.entry-points."duebridge.brokers"]
    file = "file_connector.broker:FILE"

The entry point's name is the `type` in the configuration. Whatever names a broker of this type
loads the object, a producer too: its module imports the broker's client only inside the methods
that need it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from duebridge.envelope import Envelope
from duebridge.ports.baseline import BaselineClient
from duebridge.ports.checks import Destination, Finding
from duebridge.ports.publisher import Publisher
from duebridge.ports.settings import BrokerSettings, TargetSettings


class BrokerType(ABC):
    """All that duebridge knows of one type of broker.

    `settings` in the methods is what `brokers.NAME` has in the file, defaults included, with all
    references resolved. A method that cannot import the client lets the `ImportError` out: the
    caller says what to install.
    """

    settings: ClassVar[type[BrokerSettings]]
    """The model of `brokers.NAME`."""
    target: ClassVar[type[TargetSettings]]
    """The model of a target."""
    has_baseline: ClassVar[bool] = False
    """Whether `duebridge bench` can compare the bridge with the client alone."""

    def check_envelope(self, envelope: Envelope) -> None:  # noqa: B027 - any may do
        """Raise `EnvelopeError` where a message of this broker cannot carry the envelope."""

    def check_settings(  # noqa: B027 - all may be well
        self, settings: Mapping[str, object], publish_deadline_s: float
    ) -> None:
        """Raise `ConfigError` where `open_publisher` would; uses no network.

        A message begins with the setting: `options.linger.ms: expected ...`.
        """

    @abstractmethod
    def open_publisher(
        self, settings: Mapping[str, object], publish_deadline_s: float
    ) -> Publisher:
        """Return a publisher; it connects when it is first used. Raises `ConfigError`."""

    @abstractmethod
    def examine(
        self,
        place: str,
        settings: Mapping[str, object],
        destinations: Sequence[Destination],
        deadline_s: float,
    ) -> list[Finding]:
        """Return findings about the broker, at `place`, and about each destination, at its own.

        It asks; it creates, changes and publishes nothing. A broker that does not answer within
        `deadline_s` is a finding. Raises `ConfigError`.
        """

    def open_baseline(self, settings: Mapping[str, object], name: str) -> BaselineClient:
        """Return the client alone, with a scratch target of this name, where `has_baseline`.

        Raises `ConfigError` and `BrokerUnavailable`.
        """
        raise NotImplementedError
