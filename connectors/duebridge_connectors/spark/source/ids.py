"""An id from a row's own columns: the same row has the same id, in every run and task.

The hash is stated, so that others can compute it: BLAKE2b of 13 bytes over the msgpack array of the
columns' values, in the order of the option; its base32hex (RFC 4648) in lower case, cut to 20
characters, 100 bits. Text is a msgpack string, bytes are bin, a TIMESTAMP counts as the integer of
its microseconds since 1970. The columns' names are not part of it.
"""

from base64 import b32hexencode
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec
import pyarrow as pa

from duebridge.errors import EnvelopeError

_encoder = msgspec.msgpack.Encoder()


def derive_id(values: Sequence[Any], names: Sequence[str]) -> str:
    """Return the id of a row; raises `EnvelopeError` where a value is null."""
    for name, value in zip(names, values, strict=True):
        if value is None:
            raise EnvelopeError(f"{name}: expected a value, since the id is made of it; got null")
    digest = blake2b(_encoder.encode(list(values)), digest_size=13).digest()
    return b32hexencode(digest)[:20].decode().lower()


def identifying_values(batch: pa.RecordBatch, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the values that each row's id is made of."""
    columns = [batch.column(name) for name in names]
    lists = [
        (each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each).to_pylist()
        for each in columns
    ]
    return list(zip(*lists, strict=True))
