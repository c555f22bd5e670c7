"""The content of cold rows: a blob in the store's form, and columns that people can read.

A blob stays a blob, in a column of that name, where the columns would not give back its content
byte for byte: a damaged one, or one in a form of another version.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.msgpack import Ext

from duebridge.envelope import NO_PROPERTIES, Headers, HeaderValue, Properties, Target
from duebridge.errors import RecordDamaged
from duebridge.store.wire.record import EnvelopeContent, pack_content, plain_blob, unpack_plain

_HEADER = pa.struct({"name": pa.string(), "kind": pa.string(), "value": pa.binary()})
_KINDS: dict[str, pa.DataType] = {"priority": pa.int64(), "timestamp": pa.int64()}
_PROPERTIES = pa.struct(
    {name: _KINDS.get(name, pa.string()) for name in Properties.__struct_fields__}
)
CONTENTS = pa.schema(
    {
        "body": pa.binary(),
        "content_type": pa.string(),  # of the properties, once more
        "key": pa.binary(),
        "headers": pa.list_(_HEADER),
        "max_attempts": pa.int64(),
        "properties": _PROPERTIES,
        "target": pa.map_(pa.string(), pa.string()),
    }
)
BLOB = "blob"
_TOP = 2**63
_EMPTY = EnvelopeContent(None)
_AMQP = "amqp-"  # and the code of a type that only AMQP has


_NAMES = {bytes: "bytes", str: "text", bool: "boolean", int: "integer", type(None): "null"}
_WRITERS: dict[type, Callable[[Any], bytes | None]] = {  # of header values, as people read them
    bytes: lambda value: value,
    str: str.encode,
    bool: lambda value: b"true" if value else b"false",
    int: b"%d".__mod__,
    type(None): lambda value: value,
    Ext: lambda value: bytes(value.data),
}


def with_contents(rows: pa.Table) -> pa.Table:
    """Return rows with their contents as columns instead of the blob."""
    blobs = rows.column(BLOB).to_pylist()
    contents = [_readable(blob) for blob in blobs]
    kept = [blob if each is None else None for blob, each in zip(blobs, contents, strict=True)]
    columns = [*rows.drop_columns([BLOB]).columns, *_columns(contents), pa.array(kept, pa.binary())]
    names = [name for name in rows.schema.names if name != BLOB]
    return pa.table(columns, [*names, *CONTENTS.names, BLOB])


def with_blobs(rows: pa.Table) -> pa.Table:
    """Return rows with blobs instead of the columns of `with_contents`."""
    blobs = rows.column(BLOB).to_pylist()
    contents = _contents(rows)
    made = [pack_content(next(contents)) if blob is None else _skip(contents, blob)
            for blob in blobs]  # fmt: skip
    others = rows.drop_columns([BLOB, *CONTENTS.names])
    return others.append_column(BLOB, pa.array(made, pa.binary()))


def _skip(contents: Iterator[EnvelopeContent], blob: bytes) -> bytes:
    next(contents)
    return blob


def _readable(blob: bytes | None) -> EnvelopeContent | None:
    """Return the content of a blob; None if the columns could not give it back."""
    if blob is None:
        return None
    try:
        plain = plain_blob(blob)
        content = unpack_plain(plain)
        is_same = _fits(content) and pack_content(content, compressed=False) == plain
    except (RecordDamaged, TypeError, ValueError, OverflowError):
        return None
    return content if is_same else None


def _fits(content: EnvelopeContent) -> bool:
    """Whether the columns have room for the numbers and kinds, which may come from anywhere."""
    of = content.properties or NO_PROPERTIES
    for number in (content.max_attempts, of.priority, of.timestamp):
        if number is not None and not -_TOP <= number < _TOP:
            return False
    return all(type(value) in _WRITERS for _, value in content.headers)


def _columns(contents: Sequence[EnvelopeContent | None]) -> list[pa.Array]:
    there = [each or _EMPTY for each in contents]
    properties = [each.properties or NO_PROPERTIES for each in there]
    return [
        pa.array([each.body for each in there], pa.binary()),
        pa.array([each.content_type for each in properties], pa.string()),
        pa.array([each.key for each in there], pa.binary()),
        _header_column([each.headers for each in there]),
        pa.array([each.max_attempts for each in there], pa.int64()),
        _property_column([each.properties for each in there]),
        pa.array(
            [None if each.target is None else [*each.target.as_dict().items()] for each in there],
            CONTENTS.field("target").type,
        ),
    ]


def _header_column(rows: Sequence[Headers]) -> pa.Array:
    ends, names = [0], [name for headers in rows for name, _ in headers]
    for headers in rows:
        ends.append(ends[-1] + len(headers))
    given = [value for headers in rows for _, value in headers]
    kinds = [f"{_AMQP}{each.code}" if type(each) is Ext else _NAMES[type(each)] for each in given]
    values = [_WRITERS[type(value)](value) for value in given]
    columns = zip((names, kinds, values), _HEADER, strict=True)
    arrays = [pa.array(column, field.type) for column, field in columns]
    flat = pa.StructArray.from_arrays(arrays, fields=[*_HEADER])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat)


def _property_column(rows: Sequence[Properties | None]) -> pa.Array:
    given = [row and msgspec.structs.asdict(row) for row in rows]
    return pa.array(given, _PROPERTIES)


def _value(kind: str, value: bytes | None) -> HeaderValue:
    if value is None or kind == "bytes":
        return value
    if kind == "text":
        return value.decode()
    if kind == "boolean":
        return value == b"true"
    return int(value) if kind == "integer" else Ext(int(kind.removeprefix(_AMQP)), value)


def _contents(rows: pa.Table) -> Iterator[EnvelopeContent]:
    """Yield the content of each row, of an empty one too."""
    headers = rows.column("headers").combine_chunks()
    names, kinds, values = (part.to_pylist() for part in headers.flatten().flatten())
    pairs = zip(names, map(_value, kinds, values), strict=True)
    given = (rows.column(name).to_pylist() for name in ("body", "key", "max_attempts"))
    sizes = headers.value_lengths().to_pylist()
    properties, targets = (rows.column(name).to_pylist() for name in ("properties", "target"))
    for body, key, most, size, of, target in zip(*given, sizes, properties, targets, strict=True):
        yield EnvelopeContent(
            body,
            key,
            tuple(islice(pairs, size)),
            most,
            None if of is None else Properties(**of),
            None if target is None else Target(**dict(target)),
        )


def content_columns(columns: Sequence[str], file: pa.Schema) -> list[str]:
    """Return the columns to read from a file, for these columns of the tier."""
    is_split = BLOB in columns and CONTENTS.names[0] in file.names
    return [*columns, *CONTENTS.names] if is_split else [*columns]


def as_tier_columns(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return rows of `content_columns` as columns of the tier."""
    is_split = CONTENTS.names[0] in rows.schema.names and BLOB in columns
    return (with_blobs(rows) if is_split else rows).select([*columns])
