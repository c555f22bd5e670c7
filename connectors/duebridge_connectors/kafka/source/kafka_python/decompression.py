"""Decompresses a fetched batch up to a limit: eight kilobytes of it may hold hundreds of megabytes.

kafka-python has no limit. The codecs are those that it found.
"""

import gzip
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import zstandard
from kafka import codec as found
from kafka.errors import UnsupportedCodecError
from kafka.record.default_records import DefaultRecordBatch

MOST_BYTES = 64 * 1024 * 1024
FIRST_PIECE_BYTES = 128 * 1024
XERIAL_HEADER = 16


class BatchTooLarge(Exception):
    """The batch holds more than the limit."""


def decompressed(batch: DefaultRecordBatch, most: int) -> tuple[bytes, int]:
    """Return the records of a batch, and where they begin. Raises `BatchTooLarge`.

    What is not compressed has no limit but that of its topic. Damaged data raises the errors of its
    codec, and one that is not installed `UnsupportedCodecError`.
    """
    kind = batch.compression_type
    if kind == batch.CODEC_NONE:
        return bytes(batch._buffer), batch._pos
    batch._assert_has_codec(kind)
    records = _READERS[kind](bytes(memoryview(batch._buffer)[batch._pos :]), most + 1)
    if len(records) > most:
        raise BatchTooLarge
    return records, 0


def _gzip(data: bytes, most: int) -> bytes:
    return _joined(gzip.GzipFile(fileobj=io.BytesIO(data)).read, most)


def _snappy(data: bytes, most: int) -> bytes:
    if sum(map(_stated_size, _snappy_blocks(data))) >= most:
        raise BatchTooLarge
    records: bytes = found.snappy_decode(data)
    return records


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    if not found._detect_xerial_stream(data):
        yield data
        return
    at = XERIAL_HEADER
    while at < len(data):
        start, at = at + 4, at + 4 + int.from_bytes(data[at : at + 4], signed=True)
        if at < start:
            raise ValueError("snappy: a block of a negative size")
        yield data[start : start + 5]


def _stated_size(block: bytes) -> int:
    """Return the size that a block of snappy begins with; it decompresses to no other."""
    return sum((byte & 0x7F) << 7 * n for n, byte in enumerate(_varint(block)))


def _varint(data: bytes) -> Iterator[int]:
    for byte in data[:5]:
        yield byte
        if byte < 0x80:
            return


def _lz4(data: bytes, most: int) -> bytes:
    if found.lz4 is None:  # another library than pip install 'kafka-python[lz4]' brings
        raise UnsupportedCodecError("Libraries for lz4 compression codec not found")
    stream, rest = found.lz4.LZ4FrameDecompressor(), iter([data])

    def read(size: int) -> bytes:
        return b"" if stream.eof else stream.decompress(next(rest, b""), max_length=size)

    records = _joined(read, most)
    if not stream.eof and len(records) < most:
        raise EOFError("the lz4 stream was cut")
    return records


def _zstd(data: bytes, most: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
        return _joined(stream.read, most)


def _joined(read: Callable[[int], bytes], most: int) -> bytes:
    """Read up to `most`, each time no more than came so far: codecs reserve what they are asked."""
    pieces, left, size = [], most, FIRST_PIECE_BYTES
    while left > 0 and (piece := read(min(left, size))):
        pieces.append(piece)
        left -= len(piece)
        size *= 2
    return b"".join(pieces)


_READERS: Mapping[int, Callable[[bytes, int], Any]] = {
    DefaultRecordBatch.CODEC_GZIP: _gzip,
    DefaultRecordBatch.CODEC_SNAPPY: _snappy,
    DefaultRecordBatch.CODEC_LZ4: _lz4,
    DefaultRecordBatch.CODEC_ZSTD: _zstd,
}
