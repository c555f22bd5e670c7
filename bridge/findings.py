"""What a check found: one value for `config check --connect`, for `doctor` and for connectors."""

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How bad it is: only a failure changes the exit code."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


class About(StrEnum):
    """What a finding is about; of a failure it decides the exit code (`bridge.cli.verdict`).

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
