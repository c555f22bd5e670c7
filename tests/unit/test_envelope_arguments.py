"""The arguments of `Envelope.new`: text, JSON and UUIDs, and the fields that do not exist."""

from typing import Any
from uuid import UUID

import pytest

from duebridge.durations import parse_duration_ms
from duebridge.envelope import FIELD_NAMES, PROPERTY_NAMES, Envelope
from duebridge.errors import EnvelopeError

ID = UUID("6f1c2f0e-4d5b-4c3a-9a57-0d9f3c1f2b11")


def new(*body: Any, **fields: Any) -> Envelope:
    return Envelope.new(*body, **{"delay": "1s", **fields})


def refusal(*body: Any, **fields: Any) -> str:
    with pytest.raises(EnvelopeError) as refused:
        new(*body, **fields)
    return str(refused.value)


def test_new_of_text_encodes_it_as_utf8() -> None:
    made = new("é", key="clé")
    assert (made.body, made.key) == ("é".encode(), "clé".encode())
    assert made.properties.content_type is None


def test_new_of_text_that_utf8_cannot_carry_is_refused() -> None:
    assert refusal("\ud800").startswith("body: expected text that UTF-8 can carry")
    assert refusal(b"", key="\ud800").startswith("key: expected text that UTF-8 can carry")


def test_new_of_json_encodes_it_and_names_its_type() -> None:
    made = new(json={"order": 42, "tags": ["a", None]})
    assert made.body == b'{"order":42,"tags":["a",null]}'
    assert made.properties.content_type == "application/json"
    assert new(json=None).body == b"null"


def test_new_of_json_with_a_content_type_keeps_that() -> None:
    made = new(json={}, content_type="application/cloudevents+json")
    assert made.properties.content_type == "application/cloudevents+json"


def test_new_of_json_that_cannot_be_encoded_is_refused() -> None:
    assert refusal(json=object()).startswith("json: expected a value that JSON carries")


def test_new_needs_exactly_one_of_body_and_json() -> None:
    assert refusal() == "body, json: expected exactly one of the two; got neither"
    assert refusal(b"", json={}) == "body, json: expected exactly one of the two; got both"
    assert refusal(None, json={}) == "body, json: expected exactly one of the two; got both"


def test_new_of_a_mapping_as_body_points_to_json() -> None:
    assert refusal({"a": 1}) == "body: expected bytes, text or None; got dict; pass it as json"


def test_new_of_a_uuid_takes_its_text_as_id() -> None:
    assert new(b"", id=ID).id == str(ID)


@pytest.mark.parametrize(
    ("field", "meant"),
    [("dealy", "delay"), ("header", "headers"), ("contenttype", "content_type"), ("prio", "")],
)
def test_new_of_a_misspelt_field_names_the_close_one(field: str, meant: str) -> None:
    said = refusal(b"", **{field: "5s"})
    assert said.startswith(f"unknown field {field!r}")
    if meant:
        assert said.endswith(f", did you mean {meant}?")


def test_new_of_an_unknown_field_names_all_fields() -> None:
    assert (
        refusal(b"", nonsense=1)
        == f"unknown field 'nonsense': expected one of {', '.join(FIELD_NAMES)}"
    )


def test_field_names_include_every_property() -> None:
    assert PROPERTY_NAMES <= FIELD_NAMES


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1h30m", 5_400_000),
        ("2w", 1_209_600_000),
        ("1w2d", 777_600_000),
        ("1m500ms", 60_500),
        ("1.5h30m", 7_200_000),
    ],
)
def test_parse_duration_of_several_units_adds_them(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["30m1h", "1h1h", "1h 30m", "5ms1s", "1h30", "h", "99999999w1d"])
def test_parse_duration_of_units_out_of_order_is_refused(text: str) -> None:
    with pytest.raises(EnvelopeError, match="delay: expected "):
        parse_duration_ms(text)
