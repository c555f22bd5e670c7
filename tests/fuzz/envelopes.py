"""What somebody may hand to `Envelope.new`: in order, but for up to two fields that need not be."""

import reprlib
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from typing import Any

from hypothesis import strategies as st

from duebridge.envelope import Target

MAX_BODY_BYTES = 16 * 1024
HUGE = 10**5000  # Python itself refuses to print it
BATCH = 10


class Text(str):
    """A str, and not exactly one."""


class Number(int):
    """An int, and not exactly one."""


class Bytes(bytes):
    """A bytes, and not exactly one."""


class Level(IntEnum):
    """A number with a name."""

    LOW = 1


Fields = dict[str, Any]


class Batch(list[Fields]):
    """What is handed over at once; shown short, since Python itself cannot show all of it."""

    def __repr__(self) -> str:
        return "\n".join(map(brief, self))


def brief(fields: Fields) -> str:
    """The fields of one envelope on a line."""
    return ", ".join(f"{name}={_brief(value)}" for name, value in fields.items())


def _brief(value: object) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # HUGE
        return "a number of too many digits"


_any_text = st.text(st.characters(exclude_categories=()), max_size=30)  # surrogates too
_odd_text = st.sampled_from(
    ["", "\0", "a\0b", "\ud800", "é" * 127, "é" * 128, "x" * 255, "x" * 256, "x\n", "\u202e%s{0}"]
)
_word = st.text("abcdefgh-._:é☃ ", min_size=1, max_size=12)
_bytes = st.one_of(
    st.binary(max_size=64),
    st.builds(
        lambda part, times: part * times, st.binary(min_size=1, max_size=9), st.integers(0, 1500)
    ),
    st.sampled_from([b"\0", b"\xff" * MAX_BODY_BYTES, b"\x28\xb5\x2f\xfd", b"{}\r\n$-1\r\n"]),
)
_header_value = st.one_of(
    st.binary(max_size=20), _word, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.none()
)
_pairs = st.lists(st.tuples(_word, _header_value), max_size=5)
_anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from(
        [2**31, 2**47, 2**48, 2**63, 2**64, -(2**63), HUGE, -HUGE, Number(7), Level.LOW]
    ),
    st.floats(),
    _any_text,
    _odd_text,
    st.binary(max_size=5),
    st.sampled_from([Text("odd"), Bytes(b"odd"), bytearray(b"odd"), memoryview(b"odd"), object()]),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(_word, st.integers(), max_size=2),
)
_duration = st.one_of(
    st.builds("{}{}".format, st.integers(0, 999), st.sampled_from(["ms", "s", "m", "h"])),
    st.timedeltas(timedelta(0), timedelta(days=300)),
)
_odd_duration = st.sampled_from(
    [
        *("1", "-1s", "1.s", "٣s", "1e3s", " 1s ", "0.0000001ms", "1y", "366d"),
        *("9" * 18 + "d", "9" * 5000 + "d"),
        *(timedelta.max, timedelta.min, timedelta(microseconds=1), 1.5, float("nan")),
    ]
)
_EDGE_OF_TIME = timezone(timedelta(hours=-23, minutes=-59))
_odd_instant = st.sampled_from(
    [
        *(0, -1, 1, 2**47, 2**47 + 1, 1.0, True, Number(5), datetime(2026, 1, 1), datetime.max),
        datetime.max.replace(tzinfo=_EDGE_OF_TIME),
        datetime.min.replace(tzinfo=UTC),
    ]
)
_target = st.one_of(
    st.builds(Target, st.just("memory"), topic=st.sampled_from(["t-1", "t-ü", "other"])),
    st.builds(Target, _word, topic=_any_text, exchange=st.one_of(st.none(), _word)),
    st.sampled_from(
        [Target("memory"), Target("memory", topic=5), Target("memory", "t-1", "e", "k")]
    ),  # type: ignore[arg-type]
)

_PROPERTIES = ("content_type", "content_encoding", "correlation_id", "reply_to", "type", "app_id")

_when = st.one_of(
    st.builds(lambda delay: {"delay": delay}, _duration),
    st.builds(lambda seconds: {"soon_s": seconds}, st.integers(-99, 9**6)),  # at, after now
    st.builds(lambda ms: {"at": ms}, st.integers(0, 2 * 10**12)),
)
_in_order = st.fixed_dictionaries(
    {"body": _bytes},
    optional={
        "id": _word,
        "expires": _duration,
        "key": _bytes,
        "headers": st.one_of(_pairs, st.dictionaries(_word, _header_value, max_size=5)),
        "max_attempts": st.integers(1, 10_000),
        "remember": _duration,
        "target": st.builds(Target, st.just("memory"), topic=st.sampled_from(["t-1", "t-ü"])),
        "priority": st.integers(0, 255),
        "timestamp": st.integers(0, 2**40),
        "content_type": _word,
    },
)
_ODD: dict[str, st.SearchStrategy[Any]] = {
    "body": st.one_of(st.none(), _anything),
    "id": st.one_of(_any_text, _odd_text),
    "delay": st.one_of(_odd_duration, _duration),
    "at": _odd_instant,
    "expires": st.one_of(_odd_duration, _odd_instant, _duration),
    "remember": _odd_duration,
    "headers": st.one_of(
        st.lists(st.tuples(st.one_of(_any_text, _odd_text, _anything), _anything), max_size=70),
        st.just([("x-route", "mine")]),
        st.just({"X-DLQ-reason": "mine"}),
        st.just([("big", b"x" * 40_000)]),
        st.just([("a", 1), ("a", 2)]),
    ),
    "max_attempts": st.sampled_from([0, -1, 10_001, True]),
    "target": _target,
    "priority": st.integers(-300, 300),
    "timestamp": st.integers(-(2**65), 2**65),
    "user_id": _any_text,
    "expiration": st.one_of(_any_text, st.just("3600000")),
    **dict.fromkeys(_PROPERTIES, st.one_of(_any_text, _odd_text, st.just("\ud800"))),
    "nonsense": _anything,
}


@st.composite
def envelope_fields(draw: st.DrawFn) -> Fields:
    """What is given to `Envelope.new`, the body with it."""
    fields = {**draw(_in_order), **draw(_when)}
    for name in draw(st.lists(st.sampled_from(sorted(_ODD)), max_size=2)):
        fields[name] = draw(st.one_of(_ODD[name], _ODD[name], _anything))
    return fields


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """So many as are handed over at once."""
    return Batch(draw(envelope_fields()) for _ in range(BATCH))
