"""Findings: the results of checks of the configuration, the store and the brokers."""

from enum import StrEnum

import msgspec

from duebridge.envelope import Target
from duebridge.ports.source import SourcePlan


class Severity(StrEnum):
    """The severity of a finding; only a failure changes the exit code."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


class FindingSubject(StrEnum):
    """The subject of a finding; of a failure it selects the exit code (`cli.commands.doctor`).

    BROKER: the broker does not answer, or a target is missing. Other faults of a target concern its
    ROUTE.
    """

    CONFIG = "config"
    STORE = "store"
    BROKER = "broker"
    ROUTE = "route"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check: its place, the observation and the remedy.

    `place` is a path in the configuration, such as `routes.order-timeout.target`, or a file.
    `remedy` is empty if no action is needed.
    """

    severity: Severity
    about: FindingSubject
    place: str
    found: str
    remedy: str = ""


def ok(about: FindingSubject, place: str, found: str) -> Finding:
    """Return a passed check; `found` also states which parts could not be checked."""
    return Finding(Severity.OK, about, place, found)


def warning(about: FindingSubject, place: str, found: str, remedy: str) -> Finding:
    """Return a finding that breaks nothing yet but should be fixed."""
    return Finding(Severity.WARNING, about, place, found, remedy)


def failure(about: FindingSubject, place: str, found: str, remedy: str) -> Finding:
    """Return a finding that prevents envelopes from being accepted or delivered."""
    return Finding(Severity.FAILURE, about, place, found, remedy)


class Destination(msgspec.Struct, frozen=True):
    """A target that a route names: its place in the file, and the largest body sent there.

    `plans` are those of the intakes of its broker, whose declaration may make it.
    """

    route: str
    place: str
    target: Target
    max_body_bytes: int
    plans: tuple[SourcePlan, ...] = ()
