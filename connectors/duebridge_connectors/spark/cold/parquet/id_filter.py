"""Which files may have an id: a Bloom filter beside each file, of which one block is read.

An id sets six bits in one block of 64 bytes. A block ends with a CRC, begun with the number of
blocks, so that a cut file is seen. About one file in 500 that has not the id says that it may; a
file without a filter, or with a damaged block, says so too.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyarrow.fs import LocalFileSystem

SUFFIX = ".ids"
_BLOCK = 64
_BYTES = _BLOCK - 4  # without the CRC
_BITS = 8 * _BYTES
_IDS = 30  # a block: 16 bits an id
REQUESTS = 16  # at once, to an object store
_PROBES = range(0, 6 * 9, 9)


def filter_of(ids: Iterable[str]) -> bytes:
    """Return the filter of these ids."""
    halves = np.frombuffer(b"".join(map(_digest, ids)), ">u8").reshape(-1, 2)
    blocks = max(1, -(-len(halves) // _IDS))
    last_bits = halves[:, 0] % blocks * _BITS + (_BITS - 1)
    is_set = np.zeros(blocks * _BITS, bool)
    for at in _PROBES:
        is_set[last_bits - (halves[:, 1] >> at & 511) % _BITS] = True
    bodies = map(np.ndarray.tobytes, np.packbits(is_set).reshape(blocks, _BYTES))
    return b"".join(body + crc32(body, blocks).to_bytes(4) for body in bodies)


def have_any(files: Any, paths: Sequence[str], ids: Sequence[str]) -> list[bool]:
    """Return which of these Parquet files may have rows of one of the ids."""
    check = partial(_may_have, files, ids)
    if isinstance(files, LocalFileSystem):
        return [*map(check, paths)]
    with ThreadPoolExecutor(REQUESTS) as pool:  # a request each
        return [*pool.map(check, paths)]


def _may_have(files: Any, ids: Sequence[str], path: str) -> bool:
    try:
        with files.open_input_file(path + SUFFIX) as stream:
            blocks = stream.size() // _BLOCK
            return any(_may_be_in(stream, blocks, each) for each in ids)
    except (OSError, ZeroDivisionError, pa.ArrowException):
        return True


def _may_be_in(stream: Any, blocks: int, envelope_id: str) -> bool:
    number, bits = _place(envelope_id, blocks)
    block = stream.read_at(_BLOCK, number * _BLOCK)
    body = block[:_BYTES]
    is_whole = len(block) == _BLOCK and crc32(body, blocks).to_bytes(4) == block[_BYTES:]
    return not is_whole or int.from_bytes(body) & bits == bits


def _place(envelope_id: str, blocks: int) -> tuple[int, int]:
    """Return the block of an id, and its bits there."""
    digest = _digest(envelope_id)
    drawn = int.from_bytes(digest[8:])
    bits = 0
    for at in _PROBES:
        bits |= 1 << (drawn >> at & 511) % _BITS
    return int.from_bytes(digest[:8]) % blocks, bits


def _digest(envelope_id: str) -> bytes:
    return blake2b(envelope_id.encode(), digest_size=16).digest()
