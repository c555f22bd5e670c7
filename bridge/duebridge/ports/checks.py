"""Findings: what a check of the configuration, the store or a broker reports."""

from enum import StrEnum

import msgspec

from duebridge.envelope import Target


class Severity(StrEnum):
    """The severity of a finding; only a failure changes the exit code."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


class About(StrEnum):
    """The subject of a finding; that of a failure decides the exit code (`duebridge.cli.verdict`).

    BROKER: it does not answer, or a target is missing. Anything else wrong with a target is about
    its ROUTE.
    """

    CONFIG = "config"
    STORE = "store"
    BROKER = "broker"
    ROUTE = "route"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check: its place, what was found, and what to do about it.

    `place` is a path in the configuration, such as `routes.order-timeout.target`, or a file.
    `remedy` is empty where there is nothing to do.
    """

    severity: Severity
    about: About
    place: str
    found: str
    remedy: str = ""


def ok(about: About, place: str, found: str) -> Finding:
    """Return a finding without a fault; `found` also says what could not be checked."""
    return Finding(Severity.OK, about, place, found)


def warning(about: About, place: str, found: str, remedy: str) -> Finding:
    """Return a finding that works today and should be mended."""
    return Finding(Severity.WARNING, about, place, found, remedy)


def failure(about: About, place: str, found: str, remedy: str) -> Finding:
    """Return a finding that keeps envelopes from being accepted or delivered."""
    return Finding(Severity.FAILURE, about, place, found, remedy)


class Destination(msgspec.Struct, frozen=True):
    """A target that a route names: its place in the file, and the largest body sent there."""

    route: str
    place: str
    target: Target
    max_body_bytes: int
