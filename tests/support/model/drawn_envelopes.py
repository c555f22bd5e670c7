"""Batches of what may be handed to `Envelope.new`: in order, but for up to two odd fields."""

import reprlib
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from typing import Any

from hypothesis import strategies as st

from duebridge.envelope import Target

MAX_BODY_BYTES = 16 * 1024
HUGE = 10**5000  # Python itself refuses to print it
BATCH = 10
Fields = dict[str, Any]


class Text(str):
    """A str, and not exactly one."""


class Number(int):
    """An int, and not exactly one."""


class Bytes(bytes):
    """A bytes, and not exactly one."""


class Level(IntEnum):
    """A number with a name."""

    LOW = 1


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


any_text = st.text(st.characters(exclude_categories=()), max_size=30)  # surrogates too
any_text |= st.sampled_from(["", "\0", "\ud800", "é" * 127, "é" * 128, "x" * 255, "x" * 256, "x\n"])
word = st.text("abcdefgh-._:é☃ ", min_size=1, max_size=12)
some_bytes = st.binary(max_size=64) | st.sampled_from([b"\0", b"\xff" * MAX_BODY_BYTES, b"{}\r\n"])
some_bytes |= st.builds(bytes.__mul__, st.binary(min_size=1, max_size=9), st.integers(0, 1500))
header_value = st.binary(max_size=20) | word | st.integers(-(2**63), 2**63 - 1)
header_value |= st.booleans() | st.none()
numbers = [2**31, 2**47, 2**48, 2**63, 2**64, -(2**63), HUGE, -HUGE, Number(7), Level.LOW]
anything = st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | any_text
anything |= st.binary(max_size=5) | st.lists(st.integers(0, 3), max_size=3)
anything |= st.dictionaries(word, st.integers(), max_size=2)
anything |= st.sampled_from([*numbers, Text("odd"), Bytes(b"odd"), bytearray(b"odd"), object()])
duration = st.timedeltas(timedelta(0), timedelta(days=300))
duration |= st.builds("{}{}".format, st.integers(0, 999), st.sampled_from(["ms", "s", "m", "h"]))
odd_duration = st.sampled_from(
    [
        *("1", "-1s", "1.s", "٣s", "1e3s", " 1s ", "0.0000001ms", "1y", "366d", 1.5, float("nan")),
        *(
            "9" * 18 + "d",
            "9" * 5000 + "d",
            timedelta.max,
            timedelta.min,
            timedelta(microseconds=1),
        ),
    ]
)
EDGE_OF_TIME = timezone(timedelta(hours=-23, minutes=-59))
odd_instant = st.sampled_from(
    [
        *(0, -1, 1, 2**47, 2**47 + 1, 1.0, True, Number(5), datetime(2026, 1, 1), datetime.max),
        *(datetime.max.replace(tzinfo=EDGE_OF_TIME), datetime.min.replace(tzinfo=UTC)),
    ]
)
known_target = st.builds(Target, st.just("memory"), topic=st.sampled_from(["t-1", "t-ü"]))
odd_target = st.builds(Target, word, topic=any_text, exchange=st.none() | word)
odd_target |= st.sampled_from(
    [Target("memory"), Target("memory", topic="t-1", exchange="e", routing_key="k")]
)
odd_headers = st.sampled_from(
    [[("x-route", "mine")], {"X-DLQ-reason": "mine"}, [("big", b"x" * 40_000)], [("a", 1)] * 2]
)
odd_headers |= st.lists(st.tuples(any_text | anything, anything), max_size=70)
when = st.builds(lambda delay: {"delay": delay}, duration)
when |= st.builds(lambda seconds: {"soon_s": seconds}, st.integers(-99, 9**6))  # at, after now
when |= st.builds(lambda ms: {"at": ms}, st.integers(0, 2 * 10**12))
in_order = st.fixed_dictionaries(
    {"body": some_bytes},
    optional={
        "id": word,
        "expires": duration,
        "key": some_bytes,
        "headers": st.lists(st.tuples(word, header_value), max_size=5)
        | st.dictionaries(word, header_value, max_size=5),
        "max_attempts": st.integers(1, 10_000),
        "remember": duration,
        "target": known_target,
        "priority": st.integers(0, 255),
        "timestamp": st.integers(0, 2**40),
        "content_type": word,
    },
)
ODD: dict[str, st.SearchStrategy[Any]] = {
    "body": anything,
    "id": any_text,
    "delay": odd_duration | duration,
    "at": odd_instant,
    "expires": odd_duration | odd_instant | duration,
    "remember": odd_duration,
    "headers": odd_headers,
    "max_attempts": st.sampled_from([0, -1, 10_001, True]),
    "target": known_target | odd_target,
    "priority": st.integers(-300, 300),
    "timestamp": st.integers(-(2**65), 2**65),
    "expiration": any_text | st.just("3600000"),
    **dict.fromkeys(["content_type", "content_encoding", "correlation_id"], any_text),
    **dict.fromkeys(["reply_to", "type", "app_id", "user_id"], any_text),
    "nonsense": anything,
}


@st.composite
def envelope_fields(draw: st.DrawFn) -> Fields:
    """What is given to `Envelope.new`, the body with it."""
    fields = {**draw(in_order), **draw(when)}
    for name in draw(st.lists(st.sampled_from(sorted(ODD)), max_size=2)):
        fields[name] = draw(ODD[name] | ODD[name] | anything)
    return fields


batches = st.lists(envelope_fields(), min_size=BATCH, max_size=BATCH).map(Batch)
