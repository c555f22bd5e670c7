"""The layouts that Python reads are those that the scripts write."""

import re
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duebridge.errors import RecordDamaged, RecordTooNew
from duebridge.ports.publisher import Reason
from duebridge.store import record as layout
from duebridge.store.record import (
    FIRST_ATTEMPT,
    LAYOUT,
    NOT_IN_FLIGHT,
    Flight,
    read_flight,
    read_record,
)
from tests.conftest import ROOT

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
    assert prefix == layout._PREFIX.size == len(lua_record((0,) * 5, bytes(8), b""))
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


def test_read_record_of_a_prefix_alone_has_an_empty_blob() -> None:
    assert read_record(lua_record((1, 2, 3, 4, 5), b"8 bytes.", b"")).blob == b""


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
    notes = [(LUA_FILE.read_text(), number) for LUA_FILE, number in reason_bytes()]
    assert all(f".. '\\{number}'" in text for text, number in notes)


def reason_bytes() -> list[tuple[Any, int]]:
    """Where a script writes a reason into the journal by its number."""
    return [
        (ROOT / "lua" / "claim.lua", Reason.EXPIRED),
        (ROOT / "lua" / "reclaim.lua", Reason.POISON),
    ]


def test_words_of_reasons_are_those_of_the_dead_letter_header() -> None:
    words = {reason.word for reason in Reason}
    documented = (
        "attempts_exhausted expired unroutable too_large unauthorized target_missing poison"
    )
    assert set(documented.split()) <= words


def test_six_byte_integers_hold_every_instant_that_is_allowed() -> None:
    from duebridge.durations import MAX_MS

    assert struct.calcsize(">HI") == 6
    assert 2 * MAX_MS <= 2**48
