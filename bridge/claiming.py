"""A worker's batch, leased in calls that hold nobody up."""

import structlog

from bridge.errors import StoreError
from bridge.station import Station
from bridge.store.batching import CALL_ROWS
from bridge.store.replies import Claim

log = structlog.get_logger()


def claim_batch(
    station: Station, limit: int, limit_bytes: int, *, alone: bool, promote: int
) -> Claim:
    """Lease a batch in calls of `CALL_ROWS` until one is not full, all under one token.

    What is leased is returned, whatever becomes of a later call: its own leases then run out.
    """
    store, lease_ms = station.store, station.route.lease
    rows = min(limit, CALL_ROWS)
    claim = latest = store.claim(
        rows, lease_ms, limit_bytes=limit_bytes, alone=alone, promote=promote
    )
    while latest.taken == CALL_ROWS:
        rows = min(limit - claim.taken, CALL_ROWS)
        left_bytes = limit_bytes - claim.size_bytes
        if rows <= 0 or left_bytes <= 0:
            break
        try:
            latest = store.claim(rows, lease_ms, limit_bytes=left_bytes, token=claim.token)
        except StoreError as error:
            log.warning("claim_cut_short", route=station.route.name, error=str(error))
            break
        claim = claim.joined(latest)
    return claim
