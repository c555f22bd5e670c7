"""CloudEvents in, binary and structured; their attributes travel as each broker has them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from duebridge.http.endpoints.cloud_events import event_id
from tests.support.serving import NDJSON, Served

EVENT = {"specversion": "1.0", "id": "42", "source": "/orders", "type": "order.placed"}
BINDINGS = [("topic", "ce_", b"p"), ("exchange", "cloudEvents:", None)]
STRUCTURED = {"Content-Type": "application/cloudevents+json; charset=utf-8"}


def path(route: str) -> str:
    return f"/v1/routes/{route}/envelopes"


def send(client: httpx.Client, route: str = "orders", **change: Any) -> httpx.Response:
    """Send an event in JSON; a change of None leaves an attribute out."""
    whole = {"delay": "1h", **EVENT, **change}
    event = {name: value for name, value in whole.items() if value is not None}
    return client.post(path(route), content=json.dumps(event), headers=STRUCTURED)


@pytest.mark.parametrize(("route", "prefix", "key"), BINDINGS)
def test_binary_event_keeps_its_attributes(
    served: Served, client: httpx.Client, route: str, prefix: str, key: bytes | None
) -> None:
    attributes = {**EVENT, "id": f"binary-{route}", "subject": "caf%C3%A9", "partitionkey": "p"}
    headers = {f"ce-{name}": value for name, value in {**attributes, "delay": "1h"}.items()}
    headers["Content-Type"] = "application/xml; charset=utf-8"
    answer = client.post(path(route), content=b"<a/>", headers=headers)
    assert (answer.status_code, answer.json()["id"]) == (201, f"/orders|binary-{route}")
    stored = served.stored(route)[f"/orders|binary-{route}"]
    assert (stored.body, stored.key) == (b"<a/>", key)
    assert stored.properties.content_type == "application/xml; charset=utf-8"
    told = {**attributes, "subject": "café"}
    assert dict(stored.headers) == {f"{prefix}{name}": value for name, value in told.items()}


@pytest.mark.parametrize(
    ("given", "body", "kind"),
    [
        ({"data": {"a": 1.50}}, b'{"a": 1.5}', "application/json"),
        ({"data": "text"}, b'"text"', "application/json"),
        ({"data": "text", "datacontenttype": "text/plain"}, b"text", "text/plain"),
        ({"data_base64": "AP8=", "datacontenttype": "image/png"}, b"\x00\xff", "image/png"),
        ({}, b"", "application/json"),
    ],
)
def test_structured_event_gives_its_data(
    served: Served, client: httpx.Client, given: dict[str, Any], body: bytes, kind: str
) -> None:
    name = f"structured-{body!r}-{kind}"
    assert send(client, id=name, count=3, flag=True, **given).status_code == 201
    stored = served.stored()[f"/orders|{name}"]
    assert (stored.body, stored.properties.content_type) == (body, kind)
    headers = dict(stored.headers)
    assert (headers["ce_count"], headers["ce_flag"]) == ("3", "true")
    assert headers.keys().isdisjoint({"ce_delay", "ce_data", "ce_datacontenttype"})


def test_event_may_say_when_it_is_due(client: httpx.Client) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    due_ms = int(due.timestamp()) * 1000
    for number, at in enumerate((due.isoformat(), str(due_ms), due_ms)):
        answer = send(client, id=f"at-{number}", delay=None, deliverat=at, route="topic")
        assert answer.json()["due_at_ms"] == due_ms


def test_event_that_comes_again_is_a_duplicate(client: httpx.Client) -> None:
    assert [send(client, id="again").status_code for _ in range(2)] == [201, 200]
    assert send(client, id="again", source="/other").status_code == 201
    assert send(client, id="again", data=1).status_code == 409


def test_event_that_comes_again_in_another_order_is_a_duplicate(client: httpx.Client) -> None:
    """Proxies and clients may keep fields and members in any."""
    event = {"ce-delay": "1h", **{f"ce-{name}": value for name, value in EVENT.items()}}
    orders = [event, dict(reversed(event.items()))]
    binary = [client.post(path("orders"), headers={**each, "ce-id": "turned"}) for each in orders]
    assert [each.status_code for each in binary] == [201, 200]
    members = [{"a": "1", "b": "2"}, {"b": "2", "a": "1"}]
    assert [send(client, id="swapped", **each).status_code for each in members] == [201, 200]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"specversion": "0.3"}, "specversion: expected 1.0"),
        ({"specversion": None}, "specversion: expected 1.0"),
        ({"id": ""}, "id: expected text"),
        ({"type": None}, "type: expected text"),
        ({"source": "a|b"}, "source: expected a URI"),
        ({"delay": None}, "got neither"),
        ({"deliverat": "2030-01-01T00:00:00Z"}, "got both"),
        ({"delay": "soon"}, "delay: expected a duration"),
        ({"Camel": "x"}, "'Camel': expected small letters"),
        ({"list": [1]}, "'list': expected text"),
        ({"data_base64": "?"}, "data_base64: expected base64"),
        ({"data_base64": "AP8=", "data": 1}, "data, data_base64: expected at most one"),
        ({"price": 1.5}, "'price': expected text"),
    ],
)
def test_event_of_a_wrong_form_says_what_was_expected(
    client: httpx.Client, change: dict[str, Any], said: str
) -> None:
    answer = send(client, **change)
    assert (answer.status_code, said in answer.json()["detail"]) == (422, True), answer.text


@pytest.mark.parametrize(
    ("member", "said"),
    [
        (b'"price": 1e400', "'price': expected text"),
        (b'"subject": "\xff"', "'subject': expected text"),
        (b'"count": ' + b"1" * 5000, "'count': expected text"),
        (b'"datacontenttype": "text/plain", "data": "\xff"', "data: expected text"),
        (b'"data": {"name": "J\xfcrgen"}', "data: expected text"),
    ],
)
def test_event_of_a_value_that_cannot_be_read_is_refused(
    client: httpx.Client, member: bytes, said: str
) -> None:
    event = json.dumps({"delay": "1h", **EVENT, "id": "unreadable"}).encode()
    content = event[:-1] + b", " + member + b"}"
    answer = client.post(path("orders"), content=content, headers=STRUCTURED)
    assert (answer.status_code, said in answer.json()["detail"]) == (422, True), answer.text


def test_null_of_an_event_is_as_if_it_were_left_out(served: Served, client: httpx.Client) -> None:
    nulls = {"subject": None, "deliverat": None, "datacontenttype": None, "data_base64": None}
    event = {"delay": "1h", **EVENT, "id": "nulls", "data": 1, **nulls}
    answer = client.post(path("orders"), content=json.dumps(event), headers=STRUCTURED)
    assert answer.status_code == 201, answer.text
    stored = served.stored()["/orders|nulls"]
    assert (stored.body, stored.properties.content_type) == (b"1", "application/json")
    assert dict(stored.headers).keys() == {f"ce_{name}" for name in EVENT}
    content = json.dumps({**event, "type": None})
    missing = client.post(path("orders"), content=content, headers=STRUCTURED)
    assert "type: expected text" in missing.json()["detail"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([("ce-id", "%FF")], "ce-id: expected percent-encoded UTF-8"),
        ([("ce-id", "1"), ("ce-delay", "2h")], "ce-delay: expected one header of this name"),
    ],
)
def test_binary_event_with_an_attribute_that_cannot_be_told_is_refused(
    client: httpx.Client, more: list[tuple[str, str]], said: str
) -> None:
    given = [(f"ce-{name}", value) for name, value in {**EVENT, "delay": "1h"}.items()]
    headers = [each for each in given if each[0] != "ce-id"] + more
    answer = client.post(path("orders"), content=b"x", headers=headers)
    assert (answer.status_code, said in answer.json()["detail"]) == (422, True), answer.text


def test_binary_event_of_lines_is_one_event(served: Served, client: httpx.Client) -> None:
    attributes = {**EVENT, "id": "lines", "delay": "1h"}
    headers = {f"ce-{name}": value for name, value in attributes.items()}
    lines = b'{"row": 1}\n{"row": 2}\n'
    answer = client.post(path("orders"), content=lines, headers={**headers, **NDJSON})
    assert (answer.status_code, answer.json()["status"]) == (201, "accepted"), answer.text
    assert served.stored()["/orders|lines"].body == lines


def test_event_that_is_no_json_is_a_bad_request(client: httpx.Client) -> None:
    answer = client.post(path("orders"), content=b"[", headers=STRUCTURED)
    assert answer.status_code == 400
    batch = {"Content-Type": "application/cloudevents-batch+json"}
    assert client.post(path("orders"), content=b"[]", headers=batch).status_code == 415


def test_long_event_id_is_a_hash_of_its_own() -> None:
    assert event_id("/s", "x" * 252) == "/s|" + "x" * 252
    long = {event_id("/s", "x" * 253), event_id("/s", "x" * 254), event_id("/s|", "x" * 252)}
    assert {len(each) for each in long} == {64}
    assert len(long) == 3
