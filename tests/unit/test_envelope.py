"""Envelopes: what `Envelope.new` takes, and how it refuses the rest."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from duebridge.envelope import (
    FIELD_NAMES,
    PROPERTY_NAMES,
    Envelope,
    Instant,
    Properties,
    Target,
    target_of,
)
from duebridge.errors import EnvelopeError

ID = UUID("6f1c2f0e-4d5b-4c3a-9a57-0d9f3c1f2b11")


def new(body: Any = b"", **given: Any) -> Envelope:
    given.setdefault("delay", None if "at" in given else "1s")
    return Envelope.new(body, **given)


def refusal(body: Any = b"", **given: Any) -> str:
    with pytest.raises(EnvelopeError) as refused:
        new(body, **given)
    return str(refused.value)


def test_new_keeps_every_field_as_given() -> None:
    made = new(
        b"body",
        delay="15m",
        id="order-42:timeout",
        expires="1h",
        key=b"key",
        headers={"tenant": "a"},
        max_attempts=3,
        remember="1d",
        target=Target("orders", topic="t"),
        content_type="application/json",
        priority=4,
    )
    assert (made.id, made.body, made.key) == ("order-42:timeout", b"body", b"key")
    assert (made.due, made.expires) == (Instant(900_000, True), Instant(3_600_000, True))
    assert (made.max_attempts, made.remember_ms) == (3, 86_400_000)
    assert made.headers == (("tenant", "a"),)
    assert made.target == Target("orders", topic="t")
    assert made.properties == Properties(content_type="application/json", priority=4)


def test_new_without_an_id_draws_one_that_no_other_has() -> None:
    ids = {new().id for _ in range(1000)}
    assert len(ids) == 1000
    assert {len(name) for name in ids} == {20}, "100 bits, five to a character"
    assert all(new(id=name).id == name for name in ids)


def test_new_of_a_delay_stays_a_delay() -> None:
    assert str(new(delay="15s").due) == "+15000"
    assert str(new(delay=timedelta(seconds=2)).due) == "+2000"
    assert str(new(at=1_767_225_600_000).due) == "1767225600000"
    assert str(new(at=datetime(2026, 1, 1, tzinfo=UTC)).due) == "1767225600000"
    assert str(new(at=0).due) == "0", "a past instant is due now"


def test_new_of_expires_takes_either_form() -> None:
    assert new(expires="1h").expires == Instant(3_600_000, True)
    assert new(expires=timedelta(hours=1)).expires == Instant(3_600_000, True)
    assert new(expires=1_767_225_600_000).expires == Instant(1_767_225_600_000, False)
    assert new(expires=datetime(2026, 1, 1, tzinfo=UTC)).expires == Instant(
        1_767_225_600_000, False
    )


def test_new_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        new().body = b"other"


def test_new_of_one_envelope_with_options_leaves_later_ones_alone() -> None:
    headers = {"a": "b"}
    first = new(headers=headers, expires="1h", max_attempts=1, priority=3)
    headers["c"] = "d"
    assert first.headers == (("a", "b"),)
    later = new()
    assert (later.headers, later.expires, later.max_attempts) == ((), None, None)
    assert later.properties == Properties()


@pytest.mark.parametrize(
    ("given", "got"), [({"delay": None}, "neither"), ({"delay": "1s", "at": 1}, "both")]
)
def test_new_needs_exactly_one_of_delay_and_at(given: dict[str, Any], got: str) -> None:
    assert refusal(**given) == f"delay, at: expected exactly one of the two; got {got}"


def test_new_of_a_naive_datetime_is_refused() -> None:
    naive = datetime(2026, 1, 1)
    assert "expected an aware datetime; got naive" in refusal(at=naive)
    assert "expires: expected an aware datetime; got naive" in refusal(expires=naive)


@pytest.mark.parametrize("value", [0, datetime(1970, 1, 1, tzinfo=UTC)])
def test_new_of_an_expiry_at_the_epoch_is_refused(value: Any) -> None:
    """The store's 0 stands for never."""
    assert refusal(expires=value) == "expires: expected epoch ms above 0; got 0"


@pytest.mark.parametrize("field", ["delay", "expires", "remember"])
def test_new_of_an_unreadable_duration_names_its_field(field: str) -> None:
    assert refusal(**{field: "soon"}).startswith(f"{field}: expected ")


@pytest.mark.parametrize("body", [None, b"", b"\x00\xff", bytearray(b"a"), memoryview(b"a")])
def test_new_of_bytes_or_a_tombstone_is_taken(body: Any) -> None:
    made = new(body)
    assert made.body == body
    assert made.body is None or type(made.body) is bytes


@pytest.mark.parametrize("value", [1, {}, [], object()])
def test_new_of_anything_else_for_bytes_is_refused(value: Any) -> None:
    assert refusal(value).startswith("body: expected bytes, text or None; got ")
    assert refusal(key=value).startswith("key: expected bytes, text or None; got ")


@pytest.mark.parametrize("id", ["a", "é", "order 42", "x" * 255, "{}:/*", "\U0001f600"])
def test_new_of_a_good_id_keeps_it(id: str) -> None:
    assert new(id=id).id == id


@pytest.mark.parametrize(
    ("id", "said"),
    [
        ("", "id: expected 1 to 255 bytes of UTF-8; got 0"),
        ("x" * 256, "id: expected 1 to 255 bytes of UTF-8; got 256"),
        ("é" * 128, "id: expected 1 to 255 bytes of UTF-8; got 256"),
        (b"a", "id: expected text or a UUID; got bytes"),
        (42, "id: expected text or a UUID; got int"),
        ("a\n", "id: expected printable characters only; got 'a\\n'"),
        ("a\x00", "id: expected printable characters only; got 'a\\x00'"),
        ("\ud800", "id: expected text that UTF-8 can carry; got '\\ud800'"),
    ],
)
def test_new_of_a_bad_id_is_refused_with_what_came(id: Any, said: str) -> None:
    assert refusal(id=id) == said


def test_new_of_headers_keeps_order_and_repeated_names() -> None:
    pairs = [("b", "1"), ("a", b"\xff"), ("b", None), ("n", -(2**63)), ("t", True)]
    assert new(headers=pairs).headers == tuple(pairs)
    assert new(headers=iter(pairs)).headers == tuple(pairs)
    assert new(headers={}).headers == new(headers=None).headers == ()


@pytest.mark.parametrize("value", [1.5, [], {}, 2**63, -(2**63) - 1, object(), datetime.now(UTC)])
def test_new_of_a_header_of_another_type_is_refused(value: Any) -> None:
    said = refusal(headers={"h": value})
    assert said.startswith("header 'h': expected bytes, str, bool, None or an int of 64 bits; got")


@pytest.mark.parametrize("name", ["", "x" * 256, "a\r\n", b"name", 5, None])
def test_new_of_a_bad_header_name_is_refused(name: Any) -> None:
    assert refusal(headers=[(name, "v")]).startswith("header name: expected ")


@pytest.mark.parametrize(
    "headers", ["text", [("a",)], [("a", "b", "c")], 5, [1], ["ab:c"], ["ab", "cd"]]
)
def test_new_of_headers_of_another_form_is_refused(headers: Any) -> None:
    said = refusal(headers=headers)
    assert said.startswith("headers: expected a mapping or pairs of name and value; got")


@pytest.mark.parametrize("value", [0, -1, 10_001, 1.5, "3", True])
def test_new_of_a_bad_number_of_attempts_is_refused(value: Any) -> None:
    said = refusal(max_attempts=value)
    assert said == f"max_attempts: expected a whole number, 1 to 10000; got {value!r}"


@pytest.mark.parametrize("given", [{"type": 1}, {"priority": "high"}])
def test_new_of_a_mistyped_property_names_the_known(given: dict[str, Any]) -> None:
    said = refusal(**given)
    assert said.startswith("properties: expected AMQP's (content_type, ")
    assert next(iter(given)) in said


def test_target_says_where_it_goes() -> None:
    assert str(Target("orders", topic="t")) == "orders:t"
    assert str(Target("billing", exchange="e", routing_key="k")) == "billing:e/k"


@pytest.mark.parametrize(
    "name", ["as_dict", "fields", "self", "kind", "__reduce_ex__", "__class__", "__dict__"]
)
def test_target_field_with_a_name_of_the_class_shadows_nothing(name: str) -> None:
    target = target_of(Target, {"broker": "orders", name: "x", "topic": "t"})
    assert target.as_dict() == {"broker": "orders", name: "x", "topic": "t"}
    assert dict(target.fields) == {name: "x", "topic": "t"}
    assert target.topic == "t"
    assert copy.copy(target) == target
    assert Envelope.new(b"", delay="1s", target=target).target == target


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_new_of_any_id_is_taken_whole_or_refused(id: str) -> None:
    is_good = 0 < len(id.encode()) <= 255 and id.isprintable()
    if is_good:
        assert new(id=id).id == id
    else:
        assert refusal(id=id).startswith("id: expected ")


# Text, JSON, UUIDs and misspelt fields


def test_new_of_text_encodes_it_as_utf8() -> None:
    made = new("é", key="clé")
    assert (made.body, made.key) == ("é".encode(), "clé".encode())
    assert made.properties.content_type is None


def test_new_of_text_that_utf8_cannot_carry_is_refused() -> None:
    assert refusal("\ud800").startswith("body: expected text that UTF-8 can carry")
    assert refusal(b"", key="\ud800").startswith("key: expected text that UTF-8 can carry")


def test_new_of_json_encodes_it_and_names_its_type() -> None:
    made = new(UNSET, json={"order": 42, "tags": ["a", None]})
    assert made.body == b'{"order":42,"tags":["a",null]}'
    assert made.properties.content_type == "application/json"
    assert new(UNSET, json=None).body == b"null"


def test_new_of_json_with_a_content_type_keeps_that() -> None:
    made = new(UNSET, json={}, content_type="application/cloudevents+json")
    assert made.properties.content_type == "application/cloudevents+json"


def test_new_of_json_that_cannot_be_encoded_is_refused() -> None:
    assert refusal(UNSET, json=object()).startswith("json: expected a value that JSON carries")


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_new_of_json_with_a_number_that_json_lacks_is_refused(number: str) -> None:
    """An encoder that writes null for it would change what is delivered."""
    value = {"a": None, "b": [{"c": (1.5, float(number))}]}
    assert refusal(UNSET, json=value).endswith(f"that JSON carries; got {number} in it")


def test_new_needs_exactly_one_of_body_and_json() -> None:
    assert refusal(UNSET) == "body, json: expected exactly one of the two; got neither"
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
