"""Takes packed rows, as those of the cold tier, into packed rows again."""

from typing import Any, NamedTuple

import pyarrow as pa

from duebridge.envelope import Envelope, Instant, Properties
from duebridge.errors import EnvelopeError, RecordDamaged
from duebridge.scheduling.limits import RouteLimits
from duebridge.store.wire.packed_row import PackedRow
from duebridge.store.wire.record import HASH_BYTES, unpack
from duebridge.values import is_utf8
from duebridge_connectors.spark.rows import arrow


class PackedBatch(NamedTuple):
    """Rows by index; a refused row is None and has a reason."""

    rows: list[PackedRow | None]
    refusals: dict[int, str]


def repacked(batch: pa.RecordBatch, horizon_ms: int, limits: RouteLimits | None) -> PackedBatch:
    """Return packed rows unchanged, those beyond `limits` refused; without limits none is read."""
    columns = zip(
        arrow.values(batch, "id"),
        arrow.instants_ms(batch, "due_at"),
        arrow.instants_ms(batch, "expires_at"),
        arrow.values(batch, "remember_ms"),
        arrow.values(batch, "content_hash"),
        arrow.values(batch, "generation"),
        arrow.values(batch, "blob"),
        strict=True,
    )
    rows: list[PackedRow | None] = []
    refusals: dict[int, str] = {}
    for index, (name, due, expires, remember_ms, *content) in enumerate(columns):
        try:
            _check_whole(name, due, *content)
            if limits is not None:
                _check_limits(limits, name, due, content[-1])
        except (EnvelopeError, RecordDamaged) as error:
            rows.append(None)
            refusals[index] = str(error)
            continue
        content_hash, generation, blob = content
        least_ms = max(remember_ms or 0, horizon_ms)
        instants = _instant(due), _instant(expires) if expires else None
        rows.append(PackedRow.new(name, *instants, least_ms, content_hash + blob, generation))
    return PackedBatch(rows, refusals)


def _check_whole(name: Any, due: Any, content_hash: Any, generation: Any, blob: Any) -> None:
    is_whole = None not in (name, due, content_hash, generation) and blob and is_utf8(name)
    if not is_whole or len(content_hash) != HASH_BYTES or generation < 0:
        what = f"a hash of {HASH_BYTES} bytes, a blob, and a generation of 0 or more"
        raise EnvelopeError(f"expected {what}, an id of UTF-8, and null only in expires_at")


def _check_limits(limits: RouteLimits, name: str, due: int, blob: bytes) -> None:
    """The rows may be another route's, or those of this one before its limits were changed."""
    content = unpack(blob)
    limits.check(
        Envelope(
            id=name,
            body=content.body,
            due=_instant(due),
            key=content.key,
            headers=content.headers,
            max_attempts=content.max_attempts,
            properties=content.properties or Properties(),
            target=content.target,
        )
    )


def _instant(epoch_ms: int) -> Instant:
    return Instant(max(epoch_ms, 0), relative=False)
