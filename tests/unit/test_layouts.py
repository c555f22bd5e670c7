"""Records, flights, rows and replies, as the scripts have them."""

import re
import struct
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duebridge.durations import MAX_MS
from duebridge.envelope import Envelope, Instant
from duebridge.errors import EnvelopeError, RecordDamaged, RecordTooNew, StoreError
from duebridge.ports.publisher import Reason
from duebridge.store.wire import record as layout
from duebridge.store.wire.packed_row import PackedRow, pack_row
from duebridge.store.wire.record import (
    FIRST_ATTEMPT,
    LAYOUT,
    NEWEST_LAYOUT,
    NOT_IN_FLIGHT,
    Flight,
    read_flight,
    read_record,
)
from duebridge.store.wire.replies import ReclaimReply, read_reply
from tests.support.checkout import ROOT
from tests.support.desk import of_generation

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
    written = lua("record", r"layout \.\. pack\('([^']+)', due, expires, remember, NOW")
    return bytes([LAYOUT]) + packed(written, fields) + content_hash + blob


def test_layout_is_the_one_that_the_scripts_write() -> None:
    known = lua("record", r"local LAYOUT, NEWEST_LAYOUT = (.*)")
    assert known == rf"'\{LAYOUT}', '\{NEWEST_LAYOUT}'"
    codec = lua("record", r"local CODEC_AT, FIELDS_PLAIN = (\d+, \d+)")
    assert codec == f"{layout.HASH_BYTES + 1}, {layout.FIELDS_PLAIN[0]}"
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


@pytest.mark.parametrize("first", range(NEWEST_LAYOUT + 1, 256, 50))
def test_read_record_of_a_newer_layout_is_too_new_however_short(first: int) -> None:
    for data in (bytes([first]), bytes([first]) + bytes(60)):
        expected = f"expected layout {NEWEST_LAYOUT} or older; got {first}"
        with pytest.raises(RecordTooNew, match=expected):
            read_record(data)


@pytest.mark.parametrize("data", [b"", b"\x00" * 60, b"\x01", b"\x01" * 38, b"\x02" * 38])
def test_read_record_of_damage_says_what_came(data: bytes) -> None:
    with pytest.raises(
        RecordDamaged, match="expected layout 1 to 2 and a prefix; got b'"
    ) as refused:
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


instants = st.builds(Instant, st.integers(0, MAX_MS), st.booleans())


@given(due=instants, expires=st.none() | instants, remember_ms=SIX, generation=SIX)
def test_packed_row_gives_the_script_and_python_what_it_was_made_of(
    due: Instant, expires: Instant | None, remember_ms: int, generation: int
) -> None:
    row = PackedRow.new("a", due, expires, remember_ms, b"8 bytes:the blob", generation)
    flags = due.relative + 2 * (expires is not None and expires.relative)
    numbers = due.ms, expires.ms if expires else 0, remember_ms, generation
    assert row.head == packed(lua("judge", r"struct.unpack\('>([^']+)', head"), (flags, *numbers))
    never = None if expires == Instant(0, relative=False) else expires
    assert (row.due, row.expires, row.remember_ms) == (due, never, remember_ms)
    assert (row.content_hash, row.blob) == (b"8 bytes:", b"the blob")
    for other in (0, 7):
        there = PackedRow.new("a", due, expires, remember_ms, row.content, other)
        assert of_generation(row, other) == there


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
