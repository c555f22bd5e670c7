"""The columns that the writer accepts, with their types, and those that the readers return.

All columns are checked before the first row is written; the error names every wrong column with
the expected and the given type.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from pyspark.sql import types as T  # noqa: N812 - as F for functions
from pyspark.sql.types import DataType, StructField, StructType

from duebridge.envelope import Properties
from duebridge.errors import ConfigError, did_you_mean
from duebridge.ports.discovery import target_fields

Columns: TypeAlias = dict[str, tuple[str, tuple[type[DataType], ...]]]  # shown name, accepted types

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_HEADER_VALUES = (T.StringType, T.BinaryType, T.BooleanType, *_WHOLE)
_IDENTIFYING = (*_HEADER_VALUES, T.TimestampType)

_TEXT = ("STRING", (T.StringType,))
_BYTES = ("STRING or BINARY", (T.StringType, T.BinaryType))
_INSTANT = ("TIMESTAMP or BIGINT (epoch ms)", (T.TimestampType, T.LongType))
_DURATION = ("STRING (as 15m) or INTERVAL DAY TO SECOND", (T.StringType, T.DayTimeIntervalType))
_NUMBER = ("a whole number", _WHOLE)
_HEADERS = ("MAP<STRING, value> or ARRAY<STRUCT<name, value>>, where key is a name too", ())
_TARGET = (f"STRUCT of STRINGs, broker among them, out of {', '.join(target_fields())}", ())

PROPERTIES = Properties.__struct_fields__
GIVEN_COLUMNS: Columns = {
    "id": _TEXT,
    "body": _BYTES,
    "due_at": _INSTANT,
    "delay": _DURATION,
    "key": _BYTES,
    "headers": _HEADERS,
    "expires": (f"{_INSTANT[0]}, or {_DURATION[0]}", _INSTANT[1] + _DURATION[1]),
    "max_attempts": _NUMBER,
    "remember": _DURATION,
    "target": _TARGET,
    **dict.fromkeys(PROPERTIES, _TEXT),
    "priority": _NUMBER,
    "timestamp": _NUMBER,
}
PACKED_COLUMNS: Columns = {
    "id": _TEXT,
    "due_at": _INSTANT,
    "expires_at": _INSTANT,
    "remember_ms": _NUMBER,
    "content_hash": ("BINARY", (T.BinaryType,)),
    "generation": _NUMBER,
    "blob": ("BINARY", (T.BinaryType,)),
}

_KINDS: dict[str, DataType] = {  # of the readers' columns; all others are text
    **dict.fromkeys(
        ("shard", "attempt", "failures", "expiries", "max_attempts", "position"), T.IntegerType()
    ),
    **dict.fromkeys(("remember_ms", "due_at_ms", "scheduled_at_ms", "expires_at_ms"), T.LongType()),
    **dict.fromkeys(("generation", "sequence", "lost_entries", "after", "until"), T.LongType()),
    **dict.fromkeys(("body", "key", "blob", "content_hash"), T.BinaryType()),
    "headers": T.ArrayType(StructType().add("name", T.StringType()).add("value", T.BinaryType())),
    "properties": T.MapType(T.StringType(), T.StringType()),
    "target": StructType([StructField(name, T.StringType()) for name in target_fields()]),
}
_INSTANTS = {"at", "waits_for"}  # and every column that ends in _at
_COMMENTS = {  # `DESCRIBE` of a view shows them
    "id": "The envelope's id, unique in its route while it lives or is remembered.",
    "route": "The route that it was scheduled to.",
    "shard": "The shard of the route that has it, from 0.",
    "state": "pending, ready, unack, retry or dead.",
    "due_at": "When it may be delivered, by the store's clock; never earlier.",
    "due_at_ms": "When it may be delivered, epoch ms.",
    "waits_for": "What its state is ordered by: due instant, next try, or end of a lease.",
    "scheduled_at": "When the store accepted this content.",
    "scheduled_at_ms": "When the store accepted this content, epoch ms.",
    "expires_at": "When it is buried instead of delivered; null: never.",
    "expires_at_ms": "When it is buried instead of delivered, epoch ms; null: never.",
    "remember_ms": "How long its id outlives it, ms.",
    "generation": "Rises with every accept, replace, reschedule and replay of the shard.",
    "content_hash": "Hash of all that was given; equal content has equal hashes.",
    "blob": "The packed content, which can be written back unchanged.",
    "body": "The message's body; null is a Kafka tombstone.",
    "key": "The message's key.",
    "headers": "Names and values in their order; values as Kafka carries them.",
    "max_attempts": "Its own limit of failures; null: the route's.",
    "target": "Its own target; null: the route's.",
    "properties": "AMQP properties as text.",
    "attempt": "How often a worker has claimed it; never falls.",
    "failures": "Definite failures to deliver, compared with max_attempts.",
    "expiries": "Leases that ran out while a worker had it.",
    "reason": "Why it is dead, or was buried or expired.",
    "error_class": "Class of the last error; RecordDamaged where its record cannot be read.",
    "error_message": "What the last error said.",
    "first_failed_at": "When it failed first since it was accepted or replayed.",
    "last_failed_at": "When it failed last.",
    "kind": "What happened: accepted, delivered, retried, dead, cancelled, ...; gap: entries lost.",
    "at": "When it happened, by the store's clock; null of a gap.",
    "sequence": "Number of the entry in its shard's journal; of a gap the first one lost.",
    "position": "Place in the entry; route, shard, sequence and position identify a row.",
    "namespace": "The namespace of the store that has the journal.",
    "after": "The number of the entry before the first to read.",
    "until": "The number of the last entry to read.",
    "epoch": "The life of the route that has these numbers; empty: any.",
    "lost_entries": "How many entries a gap stands for; 0 of every other row.",
}


def _columns(names: str) -> StructType:
    columns = StructType()
    for name in names.split():
        is_instant = name in _INSTANTS or name.endswith("_at")
        kind = T.TimestampType() if is_instant else _KINDS.get(name, T.StringType())
        comment = _COMMENTS.get(name)
        columns.add(name, kind, metadata={"comment": comment} if comment else None)
    return columns


DECODED = _columns(
    "id route shard state due_at waits_for scheduled_at expires_at remember_ms generation body key"
    " headers max_attempts target properties attempt failures expiries reason error_class"
    " error_message first_failed_at last_failed_at"
)
PACKED = _columns(
    "id route shard state due_at scheduled_at expires_at remember_ms generation content_hash blob"
)
COLD = _columns(
    "id batch shard due_at_ms scheduled_at_ms expires_at_ms remember_ms generation content_hash"
    " blob"
)
JOURNAL = _columns("kind at route shard sequence position id due_at attempt reason lost_entries")
RANGES = _columns("namespace route shard after until lost_entries epoch")


def check_stream_columns(schema: StructType, columns: StructType) -> None:
    """Raise `ConfigError` where a stream was loaded with the columns of the store."""
    if schema.fieldNames() != columns.fieldNames():
        raise ConfigError(
            "readStream: expected the columns of the journal, the only stream; got those of the"
            ' store; use format("duebridge_journal"), or option("stream", "journal")'
        )


def is_packed(columns: Sequence[str]) -> bool:
    """Whether rows are already packed, as those of the cold tier."""
    return "blob" in columns


def check_columns(schema: StructType, id_columns: tuple[str, ...] = ()) -> None:
    """Raise `ConfigError` with every fault of a schema that has not the columns of envelopes."""
    faults = list(_faults(schema, id_columns))
    if faults:
        raise ConfigError("the columns are not those of envelopes: " + "; ".join(faults))


def _faults(schema: StructType, id_columns: tuple[str, ...]) -> Iterator[str]:
    names = schema.fieldNames()
    known = PACKED_COLUMNS if is_packed(names) else GIVEN_COLUMNS
    for field in schema.fields:
        if field.name in known:
            if not _is_of(field.name, field.dataType, known):
                yield _wrong(field.name, known[field.name][0], field.dataType)
        elif field.name not in id_columns:
            yield f"{field.name}: no such column{did_you_mean(field.name, known)}"
    yield from _missing(names, known is PACKED_COLUMNS, bool(id_columns))
    yield from _not_identifying(schema, id_columns)


def _missing(names: Sequence[str], packed: bool, has_id_columns: bool) -> Iterator[str]:
    if packed:
        yield from (f"{name}: missing" for name in PACKED_COLUMNS if name not in names)
        return
    if "body" not in names:
        yield "body: missing, expected STRING or BINARY"
    if "due_at" not in names and "delay" not in names:
        yield f"due_at: missing, expected {_INSTANT[0]}, or a column delay"
    if ("id" in names) == has_id_columns:
        got = "both" if has_id_columns else "neither"
        yield (
            "id: expected a column id or option idColumns, so that a repeated task schedules"
            f" nothing twice; got {got}"
        )


def _not_identifying(schema: StructType, id_columns: tuple[str, ...]) -> Iterator[str]:
    for name in id_columns:
        if name not in schema.fieldNames():
            yield f"{name}: missing, option idColumns names it"
        elif not isinstance(schema[name].dataType, _IDENTIFYING):
            yield _wrong(name, "text, bytes, a whole number, a truth value or TIMESTAMP in an id",
                         schema[name].dataType)  # fmt: skip


def _is_of(name: str, kind: DataType, known: Columns) -> bool:
    if name == "headers":
        return _is_headers(kind)
    if name == "target":
        return isinstance(kind, StructType) and _is_target(kind)
    return isinstance(kind, known[name][1])


def _is_target(kind: StructType) -> bool:
    return "broker" in kind.fieldNames() and all(
        field.name in target_fields() and isinstance(field.dataType, T.StringType)
        for field in kind.fields
    )


def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, T.MapType):
        name, value = kind.keyType, kind.valueType
    elif isinstance(kind, T.ArrayType) and isinstance(kind.elementType, StructType):
        places = header_places(kind.elementType.fieldNames())
        if not places:
            return False
        name, value = (kind.elementType.fields[place].dataType for place in places)
    else:
        return False
    return isinstance(name, T.StringType) and isinstance(value, _HEADER_VALUES)


def header_places(names: Sequence[str]) -> tuple[int, ...]:
    """Return where a header's name (or key, as in Kafka's rows) and value are in a struct.

    Their names decide, in any case and order; nothing is returned for other fields. Taken by
    position, name and value would be delivered in each other's place.
    """
    lowered = [name.lower() for name in names]
    pair = ("key" if "key" in lowered else "name", "value")
    return tuple(map(lowered.index, pair)) if sorted(lowered) == sorted(pair) else ()


def _wrong(name: str, expected: str, got: DataType) -> str:
    hint = ""
    if isinstance(got, T.TimestampNTZType):
        hint = ", which has no time zone: cast it to TIMESTAMP if it means the session's zone"
    return f"{name}: expected {expected}; got {got.simpleString().upper()}{hint}"
