"""Checks store and routes for common mistakes; every finding has a remedy. The checks only read.

Brokers are checked by `duebridge.admin.checks.broker_checks`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from duebridge.admin.checks.intake_checks import check_intakes
from duebridge.admin.checks.route_checks import check_absent, check_routes, check_workers
from duebridge.admin.checks.store_checks import (
    check_fit,
    check_registered,
    check_replicas,
    check_vitals,
    store_failure,
)
from duebridge.config.models import Config
from duebridge.errors import StoreError, StoreUnavailable, StoreUnfit
from duebridge.ports.checks import Finding
from duebridge.store.server.connection import Connection

Check: TypeAlias = Callable[[Config, Connection], Iterator[Finding]]

CONNECT_CHECKS: tuple[Check, ...] = (check_fit, check_registered, check_replicas, check_absent)
DOCTOR_CHECKS: tuple[Check, ...] = (
    check_fit,
    check_registered,
    check_vitals,
    check_workers,
    check_intakes,
    check_routes,
)


def check_store(
    config: Config, connection: Connection, checks: Sequence[Check]
) -> Iterator[Finding]:
    """Yield the findings of the checks; a check that fails does not stop the others."""
    for check in checks:
        try:
            yield from check(config, connection)
        except StoreError as error:
            yield store_failure(error)
            if isinstance(error, StoreUnavailable | StoreUnfit):
                return  # the others would fail alike
