"""Records, replies and contents as bytes."""

import random
import re
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from duebridge.durations import MAX_MS
from duebridge.envelope import Envelope, Instant, Properties, Target
from duebridge.errors import EnvelopeError, RecordDamaged, RecordTooNew, StoreError
from duebridge.ports.publisher import Reason
from duebridge.store.wire import record as layout
from duebridge.store.wire.packed_row import PackedRow, pack_row
from duebridge.store.wire.record import (
    FIRST_ATTEMPT,
    LAYOUT,
    MAX_CONTENT_BYTES,
    MAX_READ_BYTES,
    NOT_IN_FLIGHT,
    PLAIN,
    ZSTD,
    EnvelopeContent,
    Flight,
    pack,
    read_flight,
    read_record,
    unpack,
)
from duebridge.store.wire.replies import ReclaimReply, read_reply
from tests.support.checkout import ROOT

SHARED = ROOT / "lua" / "shared"
SIX, FOUR, TWO = st.integers(0, 2**48 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1)
FLAG = st.integers(0, 1)


def lua(name: str, pattern: str) -> str:
    found = re.search(pattern, (SHARED / f"{name}.lua").read_text())
    assert found is not None
    return found[1]


def packed(lua_format: str, values: tuple[Any, ...]) -> bytes:
    """What Lua's struct.pack makes of the values."""
    parts = re.findall(r"c(\d+)|I(\d+)|(B)", lua_format)
    assert len(parts) == len(values)
    return b"".join(
        value if text else value.to_bytes(int(width or 1))
        for (text, width, _), value in zip(parts, values, strict=True)
    )


def lua_record(fields: tuple[int, ...], content_hash: bytes, blob: bytes) -> bytes:
    written = lua("record", r"LAYOUT \.\. struct\.pack\('([^']+)', due, expires, remember, NOW")
    return bytes([LAYOUT]) + packed(written, fields) + content_hash + blob


def test_layout_is_the_one_that_the_scripts_write() -> None:
    assert int(lua("record", r"local LAYOUT = '\\(\d)'")) == LAYOUT
    prefix = int(lua("record", r"local PREFIX_BYTES = (\d+)"))
    assert prefix == layout.PREFIX.size == len(lua_record((0,) * 5, bytes(8), b""))
    error_at = int(lua("flight", r"local ERROR_AT = (\d+)"))
    assert error_at - 1 == layout._FLIGHT.size


@given(st.tuples(SIX, SIX, SIX, SIX, SIX), st.binary(min_size=8, max_size=8), st.binary())
def test_read_record_reads_what_the_scripts_write(
    fields: tuple[int, ...], content_hash: bytes, blob: bytes
) -> None:
    record = read_record(lua_record(fields, content_hash, blob))
    assert fields == (
        record.due_at_ms,
        record.expires_at_ms,
        record.remember_ms,
        record.scheduled_at_ms,
        record.generation,
    )
    assert (record.content_hash, record.blob) == (content_hash, blob)


@pytest.mark.parametrize("first", range(LAYOUT + 1, 256, 50))
def test_read_record_of_a_newer_layout_is_too_new_however_short(first: int) -> None:
    for data in (bytes([first]), bytes([first]) + bytes(60)):
        with pytest.raises(RecordTooNew, match=f"expected layout {LAYOUT} or older; got {first}"):
            read_record(data)


@pytest.mark.parametrize("data", [b"", b"\x00" * 60, b"\x01", b"\x01" * 38])
def test_read_record_of_damage_says_what_came(data: bytes) -> None:
    with pytest.raises(RecordDamaged, match="expected layout 1 and a prefix; got b'") as refused:
        read_record(data)
    assert not isinstance(refused.value, RecordTooNew)


@given(
    st.tuples(
        *[st.binary(min_size=12, max_size=12), SIX, FOUR, TWO, TWO, TWO, TWO],
        *[FLAG, FLAG, FLAG, FLAG, st.integers(0, 255), SIX, SIX],
    ),
    st.sampled_from(["", "E\nmessage", "Class", "E\na\nb", "É\nü", "\nno class"]),
)
def test_read_flight_reads_what_the_scripts_write(values: tuple[Any, ...], error: str) -> None:
    written = packed(lua("flight", r"local FORMAT = '>([^']+)'"), values) + error.encode()
    flight = read_flight(written)
    assert values[2:9] == (
        *(flight.attempt, flight.failures, flight.retries, flight.expiries, flight.singles),
        *(flight.unsure, flight.cancel),
    )
    assert values[10:] == (
        *(flight.shunting, flight.reason),
        *(flight.first_failed_at_ms, flight.last_failed_at_ms),
    )
    assert (flight.error_class, flight.error_message) == error.partition("\n")[::2]


def test_read_flight_of_none_is_not_in_flight() -> None:
    assert read_flight(b"") == NOT_IN_FLIGHT == Flight(attempt=0)
    assert FIRST_ATTEMPT.attempt == 1


def test_read_flight_of_an_error_cut_within_a_letter_can_be_read() -> None:
    data = bytes(layout._FLIGHT.size) + "E\né".encode()[:-1]
    assert read_flight(data).error_message == "\ufffd"


@pytest.mark.parametrize("size", [1, 12, 46])
def test_read_flight_of_a_cut_one_is_damage(size: int) -> None:
    with pytest.raises(RecordDamaged, match=f"expected 47 bytes or more; got {size}"):
        read_flight(bytes(size))


def test_reasons_that_the_scripts_know_have_their_numbers() -> None:
    expired, poison = re.findall(r"\d+", lua("flight", r"local EXPIRED, POISON = (\d+, \d+)"))
    assert (int(expired), int(poison)) == (Reason.EXPIRED, Reason.POISON)
    for script, reason in (("shared/lease", Reason.EXPIRED), ("reclaim", Reason.POISON)):
        assert f".. '\\{reason}'" in (ROOT / "lua" / f"{script}.lua").read_text()


def test_six_byte_integers_hold_every_instant_that_is_allowed() -> None:
    assert struct.calcsize(">HI") == 6
    assert 2 * MAX_MS <= 2**48


POLL = [0] * 14


def test_read_reply_with_a_count_below_zero_is_a_store_error() -> None:
    assert read_reply([POLL, 2, 1], ReclaimReply).moved == 2
    with pytest.raises(StoreError, match="unexpected reply"):
        read_reply([POLL, 2, -1], ReclaimReply)


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
        b"", b"\x02" + msgspec.msgpack.encode([b"x"]), PLAIN, PLAIN + b"\xc1",
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


@given(st.binary(max_size=400), st.sampled_from([PLAIN, ZSTD, b""]))
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


UNBUILT = """
import importlib, inspect, pkgutil, re
import duebridge.store
for found in pkgutil.walk_packages(duebridge.store.__path__, "duebridge.store."):
    module = importlib.import_module(found.name)
    for name in re.findall(r"read_reply\\(.*, (_?[A-Z]\\w+)\\)", inspect.getsource(module)):
        print(name, "__msgspec_cache__" in vars(getattr(module, name)))
"""


def test_reply_types_are_all_built_once_their_modules_are_imported() -> None:
    """Before there are threads: two that build one type at once may end the process."""
    done = subprocess.run([sys.executable, "-c", UNBUILT], capture_output=True, check=True)
    built = dict(line.split() for line in done.stdout.decode().splitlines())
    assert len(built) > 20
    assert [name for name, is_built in built.items() if is_built != "True"] == []


def test_replies_are_read_first_in_many_threads_at_once() -> None:
    words = [sys.executable, "-m", "tests.unit.first_use", "60"]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, timeout=100)
    assert ended.returncode == 0, ended.stderr.decode()


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


instants = st.builds(Instant, st.integers(0, MAX_MS), st.booleans())


@given(due=instants, expires=st.none() | instants, remember_ms=SIX, generation=SIX)
def test_packed_row_gives_the_script_and_python_what_it_was_made_of(
    due: Instant, expires: Instant | None, remember_ms: int, generation: int
) -> None:
    row = PackedRow.new("a", due, expires, remember_ms, b"8 bytes:the blob", generation)
    flags = due.relative + 2 * (expires is not None and expires.relative) + 4 * bool(generation)
    numbers = due.ms, expires.ms if expires else 0, remember_ms, generation
    assert row.head == packed(lua("judge", r"struct.unpack\('>([^']+)', head"), (flags, *numbers))
    never = None if expires == Instant(0, relative=False) else expires
    assert (row.due, row.expires, row.remember_ms) == (due, never, remember_ms)
    assert (row.content_hash, row.blob) == (b"8 bytes:", b"the blob")
    for other in (0, 7):
        there = PackedRow.new("a", due, expires, remember_ms, row.content, other)
        assert row.of_generation(other) == there


@pytest.mark.parametrize(
    "wrong",
    [
        {"due": Instant(-5, relative=False)},
        {"expires": Instant(-1, relative=True)},
        {"due": Instant(2**64, relative=False)},
    ],
)
def test_pack_row_of_an_envelope_that_no_store_can_hold_refuses_it(wrong: dict[str, Any]) -> None:
    good = Envelope.new(b"x", id="a", delay="1s")
    with pytest.raises(EnvelopeError, match=r"expected due, expires, .* of 0 or more"):
        pack_row(msgspec.structs.replace(good, **wrong), 0)
