"""Packs rows of an Arrow batch for the store; a row that is no valid envelope gets a reason.

    batch ─▶ find plain rows by whole columns ─▶ plain: an Envelope without its checks
                                              └▶ others: Envelope.new, RouteLimits.check

`Envelope.new` and `RouteLimits` would accept a plain row unchanged; both paths give the same
bytes. The broker types are asked about every row. A doubtful row takes the full path, so only those
two refuse rows.
"""

from collections.abc import Iterator
from datetime import timedelta
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from duebridge.durations import LIKE_SECONDS, MAX_MS, OF_TODAY, looks_like_date, parse_duration_ms
from duebridge.envelope import Envelope, Instant, Target
from duebridge.errors import EnvelopeError
from duebridge.scheduling.limits import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    RouteLimits,
    with_whole_target,
)
from duebridge.sizes import OTHER_VALUE_BYTES
from duebridge.store.wire.packed_row import PackedRow, pack_row
from duebridge_connectors.spark.rows import arrow
from duebridge_connectors.spark.rows.ids import derive_id, identifying_values
from duebridge_connectors.spark.rows.repacking import PackedBatch, repacked
from duebridge_connectors.spark.rows.schema import PROPERTIES, is_packed

MAX_ID_BYTES = 255
MAX_CACHED = 10_000
_SELDOM = ("max_attempts", "remember", "target", *PROPERTIES)
_DOUBTFUL = Instant(-1, relative=False)  # an expiry that needs the full path


class Packer:
    """Packs batches for one route. Not thread-safe."""

    def __init__(
        self,
        limits: RouteLimits,
        horizon_ms: int,
        id_columns: tuple[str, ...] = (),
        *,
        trusts_packed: bool = False,
    ) -> None:
        """Remember ids at least `horizon_ms` after their envelope's end.

        `trusts_packed`: packed rows are not checked, as hydrate's, which the route accepted once.
        """
        self._limits = limits
        self._trusts_packed = trusts_packed
        route = self._route = limits.route
        self._horizon_ms = max(horizon_ms, route.remember)
        self._id_columns = id_columns
        self._header_names: dict[str | None, bool] = {}  # whether an envelope may have it
        self._instants: dict[str | timedelta, Instant | None] = {}

    def pack(self, batch: pa.RecordBatch) -> PackedBatch:
        """Return every row packed, or the reason for its refusal."""
        if is_packed(batch.schema.names):
            return repacked(batch, self._horizon_ms, None if self._trusts_packed else self._limits)
        refusals: dict[int, str] = {}
        ids = self._ids(batch, refusals)
        rows: list[PackedRow | None] = list(self._pack_plain(batch, ids))
        doubtful = [index for index, row in enumerate(rows) if row is None]
        if doubtful:
            given = _RowFields(batch)
            for index in doubtful:
                try:
                    rows[index] = self._pack_fully(ids[index], given, index)
                except EnvelopeError as error:
                    refusals.setdefault(index, _with_column_names(str(error)))
        return PackedBatch(rows, refusals)

    def ids(self, batch: pa.RecordBatch) -> list[str | None]:
        """Return the id of each row; None where a column that it is derived from has no value."""
        return self._ids(batch, {})

    def _ids(self, batch: pa.RecordBatch, refusals: dict[int, str]) -> list[str | None]:
        if not self._id_columns:
            return arrow.values(batch, "id")
        ids: list[str | None] = []
        for index, given in enumerate(identifying_values(batch, self._id_columns)):
            try:
                ids.append(derive_id(given, self._id_columns))
            except EnvelopeError as error:
                ids.append(None)
                refusals[index] = str(error)
        return ids

    def _pack_plain(
        self, batch: pa.RecordBatch, ids: list[str | None]
    ) -> Iterator[PackedRow | None]:
        """Yield each plain row packed, and None for every other one."""
        for is_plain, envelope_id, body, key, headers, due, expires in zip(
            self._mask(batch),
            ids,
            arrow.byte_strings(batch, "body"),
            arrow.byte_strings(batch, "key"),
            arrow.header_rows(batch),
            self._dues(batch),
            self._expiries(batch),
            strict=True,
        ):
            may_go = is_plain and envelope_id and due and expires is not _DOUBTFUL
            if not may_go:
                yield None
                continue
            envelope = Envelope(
                id=envelope_id, body=body, due=due, expires=expires, key=key, headers=headers or ()
            )
            yield self._pack_carried(envelope)

    def _mask(self, batch: pa.RecordBatch) -> list[bool]:
        """Return which rows are plain, judged by whole columns."""
        body = arrow.as_binary(batch.column("body"))
        checks = [arrow.has_size(body, 0, self._route.max_body)]
        if not self._id_columns:
            ids = batch.column("id")
            checks += [arrow.has_size(ids, 1, MAX_ID_BYTES), pc.ascii_is_printable(ids)]
        headers = arrow.column_or_none(batch, "headers")
        if headers is not None:
            checks += self._header_checks(headers)
        columns = (arrow.column_or_none(batch, name) for name in _SELDOM)
        checks += [pc.is_null(column) for column in columns if column is not None]
        return pc.fill_null(reduce(pc.and_, checks), False).to_pylist()  # type: ignore[no-any-return]

    def _dues(self, batch: pa.RecordBatch) -> list[Instant | None]:
        at, delays = arrow.instants_ms(batch, "due_at"), arrow.values(batch, "delay")
        return [
            None
            if (one is None) == (other is None)
            else self._instant(other if one is None else one)
            for one, other in zip(at, delays, strict=True)
        ]

    def _expiries(self, batch: pa.RecordBatch) -> list[Instant | None]:
        return [
            None if expiry is None else self._instant(expiry or None) or _DOUBTFUL
            for expiry in _expiries(batch)
        ]

    def _instant(self, given: int | str | timedelta | None) -> Instant | None:
        """Return an instant of a column; None if missing or invalid."""
        if given is None:
            return None
        if type(given) is int and given in OF_TODAY:
            return Instant(given, relative=False)
        if isinstance(given, int):
            is_valid = 0 <= given <= MAX_MS and given not in LIKE_SECONDS
            is_valid = is_valid and not looks_like_date(given)
            return Instant(given, relative=False) if is_valid else None
        if given not in self._instants:
            if len(self._instants) >= MAX_CACHED:
                self._instants.clear()
            self._instants[given] = _relative(given)
        return self._instants[given]

    def _pack_carried(self, envelope: Envelope) -> PackedRow | None:
        """Pack a plain row that the broker types accept, and whose header texts are UTF-8."""
        try:
            self._limits.check_by_brokers(envelope)
            return pack_row(envelope, self._horizon_ms)
        except (EnvelopeError, UnicodeEncodeError):
            return None

    def _header_checks(self, headers: Any) -> list[Any]:
        """Return which rows have no header that an envelope may not have, and not too many."""
        names, of_headers = arrow.names_and_values(headers)
        known = pc.unique(names)
        may_have = [self._may_have(name) for name in arrow.python_values(known)]
        strange = known.filter(pc.invert(pa.array(may_have, pa.bool_())))
        sizes = pc.add(pc.fill_null(pc.binary_length(names), 0), _value_bytes(of_headers))
        counts = arrow.sums(headers, pc.is_in(names, strange))
        return [
            pc.equal(counts, 0),
            pc.less_equal(arrow.sums(headers, sizes), MAX_HEADER_BYTES),
            pc.less_equal(arrow.lengths(headers), MAX_HEADERS),
        ]

    def _may_have(self, name: str | None) -> bool:
        """Whether an envelope is accepted with this header; asked once for each name."""
        known = self._header_names
        if name not in known:
            if len(known) >= MAX_CACHED:
                return False
            known[name] = self._is_accepted(name)
        return known[name]

    def _is_accepted(self, name: Any) -> bool:
        try:
            self._limits.check(
                Envelope.new(b"", id="header", key=b"", delay="0s", headers=[(name, b"")])
            )
        except EnvelopeError:
            return False
        return True

    def _pack_fully(self, envelope_id: str | None, fields: "_RowFields", index: int) -> PackedRow:
        if envelope_id is None:
            raise EnvelopeError("id: expected text; got null")
        envelope = with_whole_target(fields.envelope(envelope_id, index), self._route)
        self._limits.check(envelope)
        return pack_row(envelope, self._horizon_ms, least_ms=self._horizon_ms)


class _RowFields:
    """The columns of a batch as keyword arguments of `Envelope.new`."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._body = arrow.byte_strings(batch, "body")
        self._fields: dict[str, list[Any]] = {
            "at": arrow.instants_ms(batch, "due_at"),
            "key": arrow.byte_strings(batch, "key"),
            "headers": arrow.header_rows(batch),
            "expires": _expiries(batch),
        }
        there = [name for name in ("delay", *_SELDOM) if name in batch.schema.names]
        self._fields |= {name: arrow.values(batch, name) for name in there}

    def envelope(self, envelope_id: str, index: int) -> Envelope:
        """Build the envelope of a row; raises `EnvelopeError`."""
        fields = {name: column[index] for name, column in self._fields.items()}
        if fields.get("target") is not None:
            fields["target"] = Target(**fields["target"])
        return Envelope.new(self._body[index], id=envelope_id, **fields)


def _value_bytes(of_headers: Any) -> Any:
    if arrow.is_sized(of_headers):
        return pc.fill_null(pc.binary_length(of_headers), OTHER_VALUE_BYTES)
    return pa.repeat(OTHER_VALUE_BYTES, len(of_headers))


def _expiries(batch: pa.RecordBatch) -> list[Any]:
    column = arrow.column_or_none(batch, "expires")
    if column is None or pa.types.is_string(column.type) or pa.types.is_duration(column.type):
        return arrow.values(batch, "expires")
    return arrow.instants_ms(batch, "expires")


def _relative(given: str | timedelta) -> Instant | None:
    try:
        return Instant(parse_duration_ms(given), relative=True)
    except EnvelopeError:
        return None


def _with_column_names(text: str) -> str:
    return text.replace("at:", "due_at:", 1) if text.startswith(("at:", "delay, at:")) else text
