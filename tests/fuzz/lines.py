"""Lines for `send --jsonl`: envelopes as JSON in order, then a value or some bytes that are not."""

import json

from hypothesis import strategies as st

_text = st.text(max_size=20)
_value = st.one_of(
    _text,
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.just({"base64": "AAE="}),
    st.builds(lambda text: {"base64": text}, _text),
    st.lists(_text, max_size=3),
    st.dictionaries(_text, _text, max_size=2),
)
_duration = st.sampled_from(["0ms", "5s", "2.5h", "300d"])
_good = st.fixed_dictionaries(
    {"body": st.one_of(_text, st.just({"base64": "AAE="})), "delay": _duration},
    optional={
        "id": st.text("abcdefgh-", min_size=1, max_size=12),
        "headers": st.dictionaries(st.sampled_from("abc"), st.one_of(_text, st.integers(0, 9))),
        "key": _text,
        "expires": st.sampled_from(["301d", "2020-01-01T00:00:00Z"]),
        "remember": _duration,
        "max_attempts": st.integers(1, 99),
    },
)
_NAMES = (
    "body delay at id expires key headers max_attempts remember target priority timestamp nonsense"
)
_INSTANTS = [
    "2026-11-21T10:00:00",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.999999-23:59",
    "1767225600",
    "9" * 30,
    "1" * 5000,
    "24:00",
    "2026-W01-1T00:00:00Z",
]
_odd = st.one_of(
    st.tuples(st.sampled_from(_NAMES.split()), _value),
    st.tuples(st.sampled_from(["at", "expires"]), st.sampled_from(_INSTANTS)),
    st.tuples(st.just("target"), st.dictionaries(st.sampled_from(["broker", "topic"]), _value)),
    st.tuples(st.just("headers"), st.lists(st.tuples(_text, _value), max_size=4)),
)
_RUBBISH = [
    b"",
    b"# a remark",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"null",
    b"[" * 5000,
    b'{"body": "\\ud800", "delay": "1s"}',
    b'{"body": "\xed\xa0\x80", "delay": "1s"}',
    b'{"body": "x", "delay": "1s", "delay": "2s"}',
    b'{"body": "x", "at": ' + b"1" * 5000 + b"}",
]


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """One line without its end."""
    fields = draw(_good)
    for name, value in draw(st.lists(_odd, max_size=1)):
        if name == "at":
            fields.pop("delay", None)
        fields[name] = value
    line = json.dumps(fields, ensure_ascii=draw(st.booleans())).encode()
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(_RUBBISH))
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(line)))
        line = line[:at] + draw(st.binary(max_size=3)) + line[at + draw(st.integers(0, 3)) :]
    return line.replace(b"\n", b" ")
