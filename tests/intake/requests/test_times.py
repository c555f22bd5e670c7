"""When a message is due: every form of every header of time, read or refused with a reason."""

from typing import Any

import pytest
from msgspec.msgpack import Ext

from duebridge.durations import MAX_MS
from duebridge.envelope import Instant
from duebridge.ports.publisher import Reason
from tests.intake.requests.reading import AMQP, field, of, refused, scheduled

INTS = {"b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">Q"}
NOON_MS = 1_767_268_800_000  # 2026-01-01T12:00:00Z


WHOLE = [
    *((field(tag, form, 100), 100) for tag, form in INTS.items()),
    *((field(tag, form, 0), 0) for tag, form in INTS.items()),
    (field("b", ">b", 127), 127),
    (field("B", ">B", 255), 255),
    (field("s", ">h", 2**15 - 1), 2**15 - 1),
    (field("u", ">H", 2**16 - 1), 2**16 - 1),
    (field("i", ">I", 2**32 - 1), 2**32 - 1),
    (field("l", ">q", 2**32 + 1), 2**32 + 1),
    (field("L", ">Q", MAX_MS), MAX_MS),
    *((value, value) for value in (0, 1, 5000, 2**31, 2**32, 2**40, MAX_MS)),
    *((str(value), value) for value in (0, 5000, 2**32 + 5, MAX_MS)),
    *((str(value).encode(), value) for value in (0, 5000, 2**32 + 5, MAX_MS)),
    (b"0005000", 5000),
]
NOT_WHOLE = [
    *(field(tag, INTS[tag], -1) for tag in "bsIl"),
    *(
        -1,
        -(2**63),
        MAX_MS + 1,
        2**63 - 1,
        field("L", ">Q", 2**64 - 1),
        field("L", ">Q", MAX_MS + 1),
    ),
    *(
        None,
        True,
        False,
        field("t", ">?", True),
        Ext(AMQP, b"V"),
        Ext(AMQP, b""),
        Ext(AMQP, b"I\0"),
    ),
    *(field("f", ">f", 5.0), field("d", ">d", 5.0), field("T", ">Q", 5)),
    *("", b"", " ", "soon", "5s", "5.0", b"5.0", "5e3", "1_000", "0x10", "+5", "5 ", "\u0665"),
    *("-1", b"-1", "9" * 19, "9" * 5000, b"\xff\xfe", b"\0\0\x13\x88", "NaN", "nan", "inf"),
]


@pytest.mark.parametrize(
    ("name", "given", "ms"),
    [
        *(("x-delay", given, ms) for given, ms in WHOLE),
        *((name, 5000, 5000) for name in ("x-retry-after", "X-Delay", "X-RETRY-AFTER")),
    ],
)
def test_read_delay_of_any_width_is_that_delay(name: str, given: Any, ms: int) -> None:
    envelope = scheduled(of((name, given))).envelope

    assert envelope.due == Instant(ms, relative=True)
    assert envelope.headers == ()


@pytest.mark.parametrize(
    ("name", "given"), [*(("x-delay", given) for given in NOT_WHOLE), ("x-retry-after", -1)]
)
def test_read_delay_that_is_none_is_refused_by_its_name(name: str, given: Any) -> None:
    refusal = refused(of((name, given)))

    assert refusal.reason is Reason.INVALID
    assert refusal.text.startswith(f"{name}: expected ")
    assert len(refusal.text) < 400


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        *((NOON_MS, NOON_MS), (str(NOON_MS), NOON_MS), (str(NOON_MS).encode(), NOON_MS)),
        *((field("l", ">q", NOON_MS), NOON_MS), (field("L", ">Q", NOON_MS), NOON_MS)),
        (field("T", ">Q", NOON_MS // 1000), NOON_MS),
        ("2026-01-01T12:00:00Z", NOON_MS),
        (b"2026-01-01t12:00:00z", NOON_MS),
        ("2026-01-01 14:00:00+02:00", NOON_MS),
        ("2026-01-01T07:30:00-04:30", NOON_MS),
        ("2026-01-01T12:00:00.5Z", NOON_MS + 500),
        ("2026-01-01T12:00:00.0001Z", NOON_MS + 1),
        ("2026-01-01T12:00:00.0000000001Z", NOON_MS + 1),
        ("2026-01-01T11:59:59.9999999999Z", NOON_MS),
        ("1970-01-01T00:00:00Z", 0),
        (1, 1),
        (MAX_MS, MAX_MS),
    ],
)
def test_read_instant_is_never_early(given: Any, ms: int) -> None:
    assert scheduled(of(("x-deliver-at", given))).envelope.due == Instant(ms, relative=False)


@pytest.mark.parametrize(
    "given",
    [
        *(1_767_268_800, "1767268800", b"1767268800", field("i", ">I", 1_767_268_800)),
        *(-1, "-1", MAX_MS + 1, None, True, field("d", ">d", 1.0), field("T", ">Q", 2**63)),
        *("2026-01-01T12:00:00", "2026-01-01", "2026-01-01T12:00Z", "2026-02-30T12:00:00Z"),
        *("2026-01-01T12:00:60Z", "2026-01-01T25:00:00Z", "1969-12-31T23:59:59Z", "tomorrow", ""),
        *("2026-01-01T12:00:00+2", "2026-01-01T12:00:00Z ", "2026-W01-1T12:00:00Z"),
        *("2026-01-01T12:00:00+99:99", b"\xff", "0000-01-01T00:00:00Z"),
    ],
)
def test_read_instant_that_is_none_is_refused_by_its_name(given: Any) -> None:
    refusal = refused(of(("x-deliver-at", given)))

    assert refusal.reason is Reason.INVALID
    assert refusal.text.startswith("x-deliver-at: expected ")


def test_read_instant_that_looks_like_seconds_says_so() -> None:
    assert "looks like seconds" in refused(of(("x-deliver-at", b"1767268800"))).text


@pytest.mark.parametrize("given", [20_261_231, "20261231", b"20261231090000"])
def test_read_instant_that_looks_like_a_date_says_so(given: Any) -> None:
    assert "looks like a date" in refused(of(("x-deliver-at", given))).text


@pytest.mark.parametrize("given", [20_261_231, "20261231", b"202612310900"])
def test_read_epoch_of_a_scheduler_that_looks_like_a_date_says_so(given: Any) -> None:
    assert "looks like a date" in refused(of(("scheduler-epoch", given))).text


@pytest.mark.parametrize("given", [1_767_268_800, "1767268800", b"1767268800"])
def test_read_epoch_of_a_scheduler_is_in_seconds(given: Any) -> None:
    due = scheduled(of(("scheduler-epoch", given))).envelope.due

    assert due == Instant(NOON_MS, relative=False)


@pytest.mark.parametrize("given", [NOON_MS, str(NOON_MS), -1, None, b"noon", 10**17])
def test_read_epoch_that_is_none_is_refused(given: Any) -> None:
    assert refused(of(("scheduler-epoch", given))).text.startswith("scheduler-epoch: expected ")


def test_read_message_without_a_time_is_due_now() -> None:
    assert scheduled(of(("tenant", b"t"))).envelope.due == Instant(0, relative=True)


TIMES = ("x-delay", "x-deliver-at", "x-retry-after", "scheduler-epoch")


@pytest.mark.parametrize("first", TIMES)
@pytest.mark.parametrize("second", [*TIMES, "X-Delay"])
def test_read_two_times_are_refused_with_both_names(first: str, second: str) -> None:
    text = refused(of((first, b"1"), (second, b"1"))).text

    assert text.endswith(f"got {first}, {second.lower()}")
