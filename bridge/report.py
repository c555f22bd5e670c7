"""What a worker logs of envelopes that were not confirmed: route, id, attempt and error.

One line a batch and kind, so that an outage does not drown the log; each envelope at debug level.
"""

from collections.abc import Sequence

import structlog

from bridge.settle import Decision
from bridge.store.delay_store import Burial, Retry
from bridge.store.replies import Claim

log = structlog.get_logger()


def report(route: str, claim: Claim, decisions: Sequence[Decision]) -> None:
    """Log what was retried and buried; never a body, never a header."""
    retried = [each for each in decisions if isinstance(each, Retry)]
    buried = [each for each in decisions if isinstance(each, Burial)]
    if not retried and not buried:
        return
    attempts = {each.id: each.flight.attempt for each in claim.leased}
    for kind, level, found in (("retried", log.info, retried), ("buried", log.warning, buried)):
        lines = [_fields(route, each, attempts) for each in found]
        if lines:
            level(kind, count=len(lines), **lines[0])
        for line in lines:
            log.debug("envelope", became=kind, **line)


def _fields(route: str, decision: Retry | Burial, attempts: dict[str, int]) -> dict[str, object]:
    fields: dict[str, object] = {
        "route": route,
        "id": decision.id,
        "attempt": attempts.get(decision.id, 0),
        "error": decision.error.replace("\n", ": ", 1),
    }
    if isinstance(decision, Burial):
        return fields | {"reason": decision.reason.word}
    return fields | {"delay_ms": decision.delay_ms, "counted": decision.is_failure}
