"""Decompresses a fetched batch up to a limit: eight kilobytes of it may hold hundreds of megabytes.

kafka-python has no limit. The codecs are those that it found.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import zstandard
from kafka import codec as found
from kafka.errors import UnsupportedCodecError
from kafka.record.default_records import DefaultRecordBatch

MOST_BYTES = 64 * 1024 * 1024
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
    records = b""
    while data and len(records) < most:
        stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
        records += stream.decompress(data, most - len(records))
        if not stream.eof and len(records) < most:
            raise EOFError("the gzip stream was cut")
        data = stream.unused_data
    return records


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
    stream = found.lz4.LZ4FrameDecompressor()
    records: bytes = stream.decompress(data, max_length=most)
    if not stream.eof and len(records) < most:
        raise EOFError("the lz4 stream was cut")
    return records


def _zstd(data: bytes, most: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
        return stream.read(most)


_READERS: Mapping[int, Callable[[bytes, int], Any]] = {
    DefaultRecordBatch.CODEC_GZIP: _gzip,
    DefaultRecordBatch.CODEC_SNAPPY: _snappy,
    DefaultRecordBatch.CODEC_LZ4: _lz4,
    DefaultRecordBatch.CODEC_ZSTD: _zstd,
}
