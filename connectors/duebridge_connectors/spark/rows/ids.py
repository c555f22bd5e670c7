"""Derives an id from columns of a row: equal rows have equal ids, in every run and task.

The algorithm is public, so others can compute it: BLAKE2b with 13 bytes over the msgpack array of
the columns' values, in the order of the option; base32hex (RFC 4648) in lower case, cut to 20
characters, 100 bits. Text is a msgpack string, bytes are bin, a TIMESTAMP is the integer of its
microseconds since 1970. The names of the columns are not hashed.
"""

from base64 import b32hexencode
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec
import pyarrow as pa

from duebridge.errors import EnvelopeError
from duebridge.values import utf8
from duebridge_connectors.spark.rows.arrow import python_values

_encoder = msgspec.msgpack.Encoder()


def derive_id(values: Sequence[Any], names: Sequence[str]) -> str:
    """Return the id of a row; raises `EnvelopeError` for a null, and for text that is no UTF-8."""
    for name, value in zip(names, values, strict=True):
        if value is None:
            raise EnvelopeError(f"{name}: expected a value to derive the id from; got null")
        if isinstance(value, str):
            utf8(name, value)
    digest = blake2b(_encoder.encode(list(values)), digest_size=13).digest()
    return b32hexencode(digest)[:20].decode().lower()


def identifying_values(batch: pa.RecordBatch, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the values that the id of each row derives from."""
    columns = [batch.column(name) for name in names]
    lists = [
        python_values(column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column)
        for column in columns
    ]
    return list(zip(*lists, strict=True))
