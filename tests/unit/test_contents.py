"""Contents as bytes: packed, hashed and read again."""

import random
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from duebridge.amqp_fields import field
from duebridge.envelope import Envelope, Properties, Target
from duebridge.errors import EnvelopeError, RecordDamaged
from duebridge.store.wire.record import (
    FIELDS_PLAIN,
    FIELDS_ZSTD,
    MAX_CONTENT_BYTES,
    MAX_READ_BYTES,
    PLAIN,
    ZSTD,
    EnvelopeContent,
    decoded_size,
    pack,
    plain_blob,
    unpack,
)

DAYS = timedelta(days=10_000)
TEXT = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=20)
VALUES = st.none() | st.booleans() | st.binary(max_size=40) | st.text(max_size=40)
VALUES |= st.integers(-(2**63), 2**63 - 1)
PROPERTIES = {
    "content_type": TEXT,
    "correlation_id": TEXT,
    "reply_to": TEXT,
    "priority": st.integers(0, 255),
    "timestamp": st.integers(0, 2**40),
}
FIELDS = st.fixed_dictionaries(
    {"body": st.none() | st.binary(max_size=3000), "delay": st.timedeltas(timedelta(0), DAYS)},
    optional={
        "id": TEXT,
        "key": st.binary(max_size=50),
        "headers": st.lists(st.tuples(TEXT, VALUES), max_size=6),
        "max_attempts": st.integers(1, 10_000),
        "remember": st.timedeltas(timedelta(0), timedelta(days=9)),
        "target": st.builds(Target, TEXT, topic=TEXT),
        **PROPERTIES,
    },
)


def build(fields: dict[str, Any]) -> Envelope:
    fields = {"delay": timedelta(seconds=1), "id": "a", **fields}
    return Envelope.new(fields.pop("body", b"body"), **fields)


def content_of(envelope: Envelope) -> EnvelopeContent:
    properties = None if envelope.properties == Properties() else envelope.properties
    return EnvelopeContent(
        envelope.body,
        envelope.key,
        envelope.headers,
        envelope.max_attempts,
        properties,
        envelope.target,
    )


def typed(content: EnvelopeContent) -> list[tuple[str, type, Any]]:
    """Header values with their types: True is not 1, text is not bytes."""
    return [(name, type(value), value) for name, value in content.headers]


@given(FIELDS)
def test_unpack_gives_back_what_was_packed(fields: dict[str, Any]) -> None:
    envelope = build(fields)
    content = unpack(pack(envelope).blob)
    assert content == content_of(envelope)
    assert typed(content) == typed(content_of(envelope))


@pytest.mark.parametrize(
    ("body", "codec", "most"),
    [
        (b"x" * 400, PLAIN, 420),
        (b"x" * 10_000, ZSTD, 200),
        (random.Random(1).randbytes(10_000), PLAIN, 10_020),
    ],
    ids=["short", "regular", "random"],
)
def test_pack_compresses_only_what_shrinks(body: bytes, codec: bytes, most: int) -> None:
    blob = pack(build({"body": body})).blob
    assert blob[:1] == codec
    assert len(blob) < most
    assert unpack(blob).body == body


OTHERS = [
    *[("body", b"other"), ("body", None), ("body", b""), ("key", b"k"), ("key", b"")],
    *[("headers", [("a", "1")]), ("max_attempts", 3), ("remember", "1h"), ("expires", "1h")],
    *[("delay", "2s"), ("target", Target("b", topic="t")), ("content_type", "x"), ("priority", 0)],
]


@pytest.mark.parametrize(("body", "codec"), [(b"x", FIELDS_PLAIN), (b"x" * 5000, FIELDS_ZSTD)])
def test_pack_of_a_field_of_amqp_says_so_by_the_codec(body: bytes, codec: bytes) -> None:
    headers = [("a", b"text"), ("x-death", field("A", bytes(4)))]
    blob = pack(build({"body": body, "headers": headers})).blob
    assert blob[:1] == codec
    assert plain_blob(blob)[:1] == FIELDS_PLAIN
    assert decoded_size(blob) >= len(body)
    assert unpack(blob).headers == tuple(headers)
    assert unpack(plain_blob(blob)) == unpack(blob)


def test_pack_of_the_same_content_is_the_same_bytes() -> None:
    first, second = pack(build({"id": "a"})), pack(build({"id": "b"}))
    assert first == second, "the hash depends on the id"
    assert len(first.content_hash) == 8


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(({}, {field: value}) for field, value in OTHERS),
        ({}, {"delay": None, "at": 1000}),
        ({"headers": [("a", "1")]}, {"headers": [("a", b"1")]}),
        ({"headers": [("a", 1)]}, {"headers": [("a", True)]}),
        ({"headers": [("a", 1), ("b", 1)]}, {"headers": [("b", 1), ("a", 1)]}),
        ({"expires": "1h"}, {"expires": 3_600_000}),
        ({"expires": "1h"}, {"remember": "1h"}),
        ({"content_type": "x"}, {"content_encoding": "x"}),
        ({"body": b"", "key": b"x"}, {"body": b"x", "key": b""}),
        ({"target": Target("b", topic="t")}, {"target": Target("b", exchange="t")}),
    ],
    ids=str,
)
def test_hash_tells_apart_what_looks_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert pack(build(one)).content_hash != pack(build(other)).content_hash


def test_hash_of_a_duration_depends_on_its_ms_and_not_on_its_form() -> None:
    forms = [{"delay": "60s"}, {"delay": "1m"}, {"delay": timedelta(minutes=1)}]
    assert len({pack(build(form)).content_hash for form in forms}) == 1


@given(FIELDS, FIELDS)
def test_hash_is_equal_only_for_equal_content(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = build(one), build(other)
    same = msgspec.structs.replace(first, id="x") == msgspec.structs.replace(second, id="x")
    same = same and typed(content_of(first)) == typed(content_of(second))
    assert (pack(first).content_hash == pack(second).content_hash) == same


@pytest.mark.parametrize("body", [b"short", b"x" * 5000])
def test_unpack_of_any_cut_blob_is_damage(body: bytes) -> None:
    blob = pack(build({"body": body, "key": b"k", "headers": {"a": "b"}})).blob
    for size in range(len(blob)):
        with pytest.raises(RecordDamaged):
            unpack(blob[:size])


def zstd(content: bytes, **options: Any) -> bytes:
    return ZSTD + zstandard.ZstdCompressor(**options).compress(content)


@pytest.mark.parametrize(
    "blob",
    [
        b"", b"\x04" + msgspec.msgpack.encode([b"x"]), PLAIN, PLAIN + b"\xc1",
        PLAIN + msgspec.msgpack.encode({"body": b"x"}),
        PLAIN + msgspec.msgpack.encode(["text for a body"]),
        PLAIN + msgspec.msgpack.encode([b"x"]) + b"more", PLAIN + b"\x92\xc0\xa1\xff",
        PLAIN + b"\x93\xc4\x01x\xc0\x91\x92\xa1\xff\xa1v",
        PLAIN + b"\x93\xc4\x01x\xc0\x91\x92\xa1v\xa1\xff", PLAIN + b"\x91" * 100_000,
        PLAIN + b"\x93\xc4\x01x\xc0\x91\x92\xa1v" + b"\x91" * 100_000, ZSTD,
        ZSTD + b"no frame at all",
        zstd(b"\xc1"),
        zstd(msgspec.msgpack.encode([b"x"]), write_content_size=False),
        zstd(bytes(MAX_READ_BYTES + 1)),
    ],
    ids=range(17),
)  # fmt: skip
def test_unpack_of_a_damaged_blob_is_damage_and_nothing_else(blob: bytes) -> None:
    with pytest.raises(RecordDamaged, match=r"^blob"):
        unpack(blob)


def test_unpack_of_a_body_of_an_earlier_version_may_be_larger_than_one_of_now() -> None:
    body = bytes(2 * MAX_CONTENT_BYTES)
    assert unpack(zstd(msgspec.msgpack.encode([body]))) == EnvelopeContent(body)


def test_unpack_of_a_bomb_with_a_false_size_does_not_inflate() -> None:
    bomb = bytearray(zstd(bytes(40_000_000)))
    size_at = bytes(bomb).index((40_000_000).to_bytes(4, "little"))
    bomb[size_at : size_at + 4] = (1000).to_bytes(4, "little")
    with pytest.raises(RecordDamaged):
        unpack(bytes(bomb))


@given(st.binary(max_size=400), st.sampled_from([PLAIN, ZSTD, FIELDS_PLAIN, FIELDS_ZSTD, b""]))
def test_unpack_of_any_bytes_gives_content_or_damage(noise: bytes, codec: bytes) -> None:
    with suppress(RecordDamaged):
        assert isinstance(unpack(codec + noise), EnvelopeContent)


@given(st.data(), st.sampled_from([b"short", b"long" * 500]))
def test_unpack_of_a_blob_with_a_changed_byte_gives_content_or_damage(
    data: st.DataObject, body: bytes
) -> None:
    blob = bytearray(pack(build({"body": body, "headers": {"é": "ü"}, "priority": 1})).blob)
    blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    with suppress(RecordDamaged):
        assert isinstance(unpack(bytes(blob)), EnvelopeContent)


def test_pack_more_than_could_be_read_again_is_refused() -> None:
    body, key = bytes(MAX_CONTENT_BYTES // 2), bytes(MAX_CONTENT_BYTES // 2)
    with pytest.raises(EnvelopeError, match=f"expected up to {MAX_CONTENT_BYTES} bytes of body"):
        pack(build({"body": body, "key": key}))


def test_pack_and_unpack_work_in_many_threads_at_once() -> None:
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        body = random.Random(seed).randbytes(20) * 200
        try:
            for _ in range(200):
                assert unpack(pack(build({"body": body})).blob).body == body
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
