"""Lines from a stream: however the bytes arrive, each line comes once, whole and numbered."""

import io
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duebridge.cli import lines
from duebridge.cli.lines import Base64, Line, is_empty, json_value, parse_line, read_batches
from duebridge.envelope import HeaderValue
from duebridge.errors import EnvelopeError


class Chunks(io.RawIOBase):
    """A stream that gives one chunk a read, as a pipe does."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = [chunk for chunk in chunks if chunk]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = self._chunks.pop(0) if self._chunks else b""
        buffer[: len(chunk)] = chunk
        return len(chunk)


@given(st.lists(st.binary(max_size=20) | st.just(b"\n"), max_size=30), st.integers(1, 5))
def test_read_batches_of_any_chunks_gives_every_line_once(chunks: list[bytes], size: int) -> None:
    batches = list(read_batches(io.BufferedReader(Chunks(list(chunks))), size))
    whole = b"".join(chunks).split(b"\n")
    if not whole[-1]:
        whole.pop()
    assert [line for batch in batches for line in batch] == [
        Line(number, text) for number, text in enumerate(whole, 1)
    ]
    assert all(1 <= len(batch) <= size for batch in batches)


def test_read_batches_gives_a_line_before_the_stream_ends() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        os.write(writing, b"one\ntw")
        batches = read_batches(stream, 500)
        assert next(batches) == [Line(1, b"one")]
        threading.Thread(target=lambda: (os.write(writing, b"o\n"), os.close(writing))).start()
        assert next(batches) == [Line(2, b"two")]
        assert list(batches) == []


def test_read_batches_too_long_line_is_cut_and_then_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 10)
    stream = io.BufferedReader(Chunks([b"x" * 50, b"y" * 50, b"\nshort\n"]))
    long, short = (line for batch in read_batches(stream, 500) for line in batch)
    assert (long.number, short) == (1, Line(2, b"short"))
    with pytest.raises(EnvelopeError, match="at most 10 bytes"):
        parse_line(long.text)


@given(st.binary(max_size=60))
def test_parse_line_of_any_bytes_gives_an_envelope_or_a_clear_error(text: bytes) -> None:
    with pytest.raises(EnvelopeError):
        parse_line(text)


@pytest.mark.parametrize("text", [b"", b"  \t", b"# {}", b"  # x", b"\r"])
def test_is_empty_of_a_blank_or_a_remark_is_true(text: bytes) -> None:
    assert is_empty(text)
    assert not is_empty(b'{"body": "#"}')


@pytest.mark.parametrize(
    ("value", "shown"),
    [(b"x", "x"), (b"\xff", Base64("/w==")), ("x", "x"), (5, 5), (True, True), (None, None)],
)
def test_json_value_is_text_where_it_can_be(value: HeaderValue, shown: object) -> None:
    assert json_value(value) == shown
