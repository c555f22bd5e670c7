"""The other port of a connector: whether a broker is there and takes what the routes will send.

An examiner is one function, found by the entry point `duebridge.examiners`, named as the broker's
`type`. It creates, changes and publishes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from bridge.envelope import Target
from bridge.findings import Finding


class Destination(msgspec.Struct, frozen=True):
    """A target that a route names: where it does, and the largest body that may go there."""

    route: str
    place: str
    target: Target
    max_body_bytes: int


class Examiner(Protocol):
    """What the entry point names."""

    def __call__(
        self,
        place: str,
        settings: Mapping[str, object],
        destinations: Sequence[Destination],
        deadline_s: float,
    ) -> list[Finding]:
        """Return findings about a broker, at `place`, and about each destination, at its own.

        A broker that does not answer within `deadline_s` is a finding. Raises `ConfigError` for
        settings that cannot be used.
        """
        ...
