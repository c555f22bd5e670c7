"""The columns that the writer accepts, with their types, and those that the readers return.

All columns are checked before the first row is written; the error names every wrong column with
the expected and the given type.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from duebridge.envelope import Properties
from duebridge.errors import ConfigError
from duebridge.ports.discovery import target_fields
from duebridge.ports.settings import did_you_mean

Columns: TypeAlias = dict[str, tuple[str, tuple[type[DataType], ...]]]  # shown name, accepted types

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_HEADER_VALUES = (StringType, BinaryType, BooleanType, *_WHOLE)
_IDENTIFYING = (*_HEADER_VALUES, TimestampType)

_TEXT = ("STRING", (StringType,))
_BYTES = ("STRING or BINARY", (StringType, BinaryType))
_INSTANT = ("TIMESTAMP or BIGINT (epoch ms)", (TimestampType, LongType))
_DURATION = ("STRING (as 15m) or INTERVAL DAY TO SECOND", (StringType, DayTimeIntervalType))
_NUMBER = ("a whole number", _WHOLE)
_HEADERS = ("MAP<STRING, value> or ARRAY<STRUCT<name, value>>", ())
_TARGET = (f"STRUCT of STRINGs out of {', '.join(target_fields())}", ())

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
    "content_hash": ("BINARY", (BinaryType,)),
    "generation": _NUMBER,
    "blob": ("BINARY", (BinaryType,)),
}

_KINDS: dict[str, DataType] = {  # of the readers' columns; all others are text
    "shard": IntegerType(),
    "attempt": IntegerType(),
    "failures": IntegerType(),
    "expiries": IntegerType(),
    "max_attempts": IntegerType(),
    "position": IntegerType(),
    "remember_ms": LongType(),
    "due_at_ms": LongType(),
    "scheduled_at_ms": LongType(),
    "expires_at_ms": LongType(),
    "generation": LongType(),
    "sequence": LongType(),
    "lost_entries": LongType(),
    "body": BinaryType(),
    "key": BinaryType(),
    "blob": BinaryType(),
    "content_hash": BinaryType(),
    "headers": ArrayType(StructType().add("name", StringType()).add("value", BinaryType())),
    "properties": MapType(StringType(), StringType()),
    "target": StructType([StructField(name, StringType()) for name in target_fields()]),
}
_INSTANTS = {"at", "waits_for"}  # and every column that ends in _at


def _columns(names: str) -> StructType:
    columns = StructType()
    for name in names.split():
        is_instant = name in _INSTANTS or name.endswith("_at")
        columns.add(name, TimestampType() if is_instant else _KINDS.get(name, StringType()))
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
            "id: expected a column id or option id_columns, so that a repeated task schedules"
            f" nothing twice; got {got}"
        )


def _not_identifying(schema: StructType, id_columns: tuple[str, ...]) -> Iterator[str]:
    for name in id_columns:
        if name not in schema.fieldNames():
            yield f"{name}: missing, option id_columns names it"
        elif not isinstance(schema[name].dataType, _IDENTIFYING):
            yield _wrong(name, "text, bytes, a whole number, a truth value or TIMESTAMP in an id",
                         schema[name].dataType)  # fmt: skip


def _is_of(name: str, kind: DataType, known: Columns) -> bool:
    if name == "headers":
        return _is_headers(kind)
    if name == "target":
        return isinstance(kind, StructType) and all(
            field.name in target_fields() and isinstance(field.dataType, StringType)
            for field in kind.fields
        )
    return isinstance(kind, known[name][1])


def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        name, value = kind.keyType, kind.valueType
    elif isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        if len(kind.elementType.fields) != 2:
            return False
        name, value = (field.dataType for field in kind.elementType.fields)
    else:
        return False
    return isinstance(name, StringType) and isinstance(value, _HEADER_VALUES)


def _wrong(name: str, expected: str, got: DataType) -> str:
    hint = ""
    if isinstance(got, TimestampNTZType):
        hint = ", which has no time zone: cast it to TIMESTAMP if it means the session's zone"
    return f"{name}: expected {expected}; got {got.simpleString().upper()}{hint}"
