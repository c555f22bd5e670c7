"""The other port of a connector: whether a broker is there and takes what the routes will send.

An examiner is one function, found by the entry point `duebridge.examiners`, named as the broker's
`type`. It creates, changes and publishes nothing.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from duebridge.envelope import Target


class Severity(StrEnum):
    """How bad it is: only a failure changes the exit code."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


class About(StrEnum):
    """What a finding is about; of a failure it decides the exit code of `duebridge doctor`.

    BROKER means that one does not answer or that a target is missing; what else is wrong with a
    target is about its ROUTE.
    """

    CONFIG = "config"
    STORE = "store"
    BROKER = "broker"
    ROUTE = "route"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: where it is written, what was found, and what to do.

    `place` is a path in the configuration, such as `routes.order-timeout.target`, or a file.
    `remedy` is empty where there is nothing to do.
    """

    severity: Severity
    about: About
    place: str
    found: str
    remedy: str = ""


def ok(about: About, place: str, found: str) -> Finding:
    """Return a finding that all is well; `found` also says what could not be checked."""
    return Finding(Severity.OK, about, place, found)


def warning(about: About, place: str, found: str, remedy: str) -> Finding:
    """Return a finding that works today, but is no good."""
    return Finding(Severity.WARNING, about, place, found, remedy)


def failure(about: About, place: str, found: str, remedy: str) -> Finding:
    """Return a finding that keeps envelopes from being accepted or delivered."""
    return Finding(Severity.FAILURE, about, place, found, remedy)


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
