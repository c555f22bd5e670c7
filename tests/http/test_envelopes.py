"""One envelope over HTTP: each status, hostile ids, and the ways to write a body."""

import base64
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from duebridge.ports.publisher import Reason
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import open_connection
from tests.support.desk import burial
from tests.support.servers import wait_until
from tests.support.serving import JSON, ORDERS, Served

HOSTILE = [
    *("a/b", "a%2Fb", "../../etc/passwd", "ключ 🔑", "?x=1#y", "deliver-now", "a/deliver-now"),
    *("a b+c", "<script>alert(1)</script>", "'\";--", "{id}", "%00", "x" * 255),
]


def post(client: httpx.Client, path: str = ORDERS, /, **given: Any) -> httpx.Response:
    return client.post(path, json={"body": "x", "delay": "15m", **given})


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The problem that an answer is."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    assert found["title"]
    assert found["detail"]
    return found


def test_post_stores_the_envelope_and_says_where_it_is(
    served: Served, client: httpx.Client
) -> None:
    answer = client.post(
        ORDERS,
        json={
            "json": {"order": 1},
            "delay": "1h",
            "id": "whole",
            "key": "k",
            "headers": {"tenant": "a"},
            "max_attempts": 3,
        },
    )
    assert answer.status_code == 201
    assert answer.json().keys() == {"id", "route", "due_at_ms", "status"}
    assert (answer.json()["status"], answer.json()["route"]) == ("accepted", "orders")
    stored = served.stored()["whole"]
    assert (stored.body, stored.key, stored.headers) == (b'{"order":1}', b"k", (("tenant", "a"),))
    assert (stored.max_attempts, stored.properties.content_type) == (3, "application/json")
    assert stored.due_at_ms == answer.json()["due_at_ms"]
    assert client.get(answer.headers["location"]).json()["state"] == "pending"


@pytest.mark.parametrize(
    ("given", "body"),
    [
        ({"body": "naïve"}, "naïve".encode()),
        ({"body": None}, None),
        ({"body_base64": base64.b64encode(b"\x00\xff").decode()}, b"\x00\xff"),
        ({"body": {"base64": "AP8="}}, b"\x00\xff"),
        ({"json": None}, b"null"),
    ],
)
def test_post_takes_each_form_of_a_body(
    served: Served, client: httpx.Client, given: dict[str, Any], body: bytes | None
) -> None:
    answer = client.post(ORDERS, json={"delay": "1h", **given})
    assert answer.status_code == 201
    assert served.stored()[answer.json()["id"]].body == body


def test_post_again_answers_as_the_python_api_does(client: httpx.Client) -> None:
    first = post(client, id="again")
    assert (first.status_code, first.json()["status"]) == (201, "accepted")
    same = post(client, id="again")
    assert (same.status_code, same.json()["status"]) == (200, "duplicate")
    assert same.json()["due_at_ms"] == first.json()["due_at_ms"]
    other = problem(post(client, id="again", body="other"), 409)
    assert (other["answer"]["status"], other["answer"]["id"]) == ("conflict", "again")
    replaced = post(client, f"{ORDERS}?on_conflict=replace", id="again", body="other")
    assert (replaced.status_code, replaced.json()["status"]) == (201, "replaced")


def test_post_of_a_remembered_id_says_how_it_ended(client: httpx.Client) -> None:
    post(client, id="ended", remember="1h")
    assert client.delete(f"{ORDERS}/ended").status_code == 200
    assert problem(post(client, id="ended", remember="1h"), 409)["answer"]["status"] == "cancelled"


@pytest.mark.parametrize(
    ("status", "content", "kind", "said"),
    [
        (400, b"{", "application/json", "expected an envelope as a JSON object"),
        (400, b"\xff", "application/json", "expected an envelope as a JSON object"),
        (400, b'{"json":' + b"[" * 100_000, "application/json", "expected"),
        (
            400,
            b'{"json": "J\xfcrgen", "delay": "1s"}',
            "application/json",
            "can't decode byte 0xfc",
        ),
        (422, b"[]", "application/json", "Expected `object`, got `array`"),
        (422, b'{"body": 1, "delay": "1s"}', "application/json", "body: expected text"),
        (422, b'{"body": "x", "delay": 5}', "application/json", "delay: expected a duration"),
        (422, b'{"body": "x"}', "application/json", "expected exactly one of the two; got neither"),
        (422, b'{"body": "x", "json": 1, "delay": "1s"}', "application/json", "body and json"),
        (422, b'{"body": "x", "dealy": "1s"}', "application/json", "'dealy', did you mean delay?"),
        (422, b'{"body": "x", "at": 1767225600}', "application/json", "looks like seconds"),
        (422, b'{"body": "x", "at": "20261231"}', "application/json", "looks like a date"),
        (422, b'{"body": "x", "delay": "31d"}', "application/json", "within max_delay (30d)"),
        (415, b"{}", "text/plain", "got text/plain"),
        (415, b"{}", "", "got none"),
    ],
)
def test_post_of_a_wrong_request_says_what_was_expected(
    client: httpx.Client, status: int, content: bytes, kind: str, said: str
) -> None:
    headers = {"Content-Type": kind} if kind else {}
    assert said in problem(client.post(ORDERS, content=content, headers=headers), status)["detail"]


def test_post_of_a_compressed_body_is_refused(client: httpx.Client) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = client.post(ORDERS, content=b"x", headers=headers)
    assert "expected none; got gzip" in problem(answer, 415)["detail"]


def test_post_of_a_body_that_is_too_large_is_refused(client: httpx.Client) -> None:
    path = "/v1/routes/small/envelopes"
    assert post(client, path, body="x" * 1024).status_code == 201
    assert "at most 1024 bytes" in problem(post(client, path, body="x" * 1025), 413)["detail"]
    assert "of this request" in problem(post(client, path, body="x" * 200_000), 413)["detail"]
    parts = (b"x" * 10_000 for _ in range(20))
    problem(client.post(path, content=parts, headers=JSON), 413)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/routes/nowhere/envelopes", 404),
        ("GET", "/v1/routes/nowhere/envelopes/a", 404),
        ("GET", f"{ORDERS}/unknown", 404),
        ("DELETE", f"{ORDERS}/unknown", 404),
        ("GET", f"{ORDERS}/%FF", 400),
        ("GET", f"{ORDERS}/%0A", 404),
        ("GET", "/v1/nothing", 404),
        ("PUT", ORDERS, 405),
        ("GET", ORDERS, 405),
        ("POST", f"{ORDERS}/a", 405),
        ("POST", f"{ORDERS}?on_conflict=merge", 400),
    ],
)
def test_request_of_a_wrong_path_is_a_problem_that_says_what_was_expected(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    found = problem(client.request(method, path, json={"body": "x", "delay": "1s"}), status)
    assert ": expected " in found["detail"] or found["title"] == "Unknown envelope"


def test_request_of_no_path_or_method_names_what_was_asked_for(client: httpx.Client) -> None:
    detail = problem(client.get("/v1/nothing"), 404)["detail"]
    assert detail == "path: expected one that /openapi.json lists; got '/v1/nothing'"
    detail = problem(client.get(ORDERS), 405)["detail"]
    assert detail == "method: expected POST; got 'GET'"
    detail = problem(post(client, f"{ORDERS}?on_conflict=merge"), 400)["detail"]
    assert detail == "on_conflict: expected one of refuse, replace; got 'merge'"


@pytest.mark.parametrize("query", ["on_conflct=replace", "on_conflict=replace&dry=1", "=1"])
def test_request_with_an_unknown_query_parameter_stores_nothing_and_names_the_known(
    served: Served, client: httpx.Client, query: str
) -> None:
    answer = client.post(f"{ORDERS}?{query}", json={"body": "x", "delay": "1h", "id": "misspelt"})
    said = problem(answer, 400)["detail"]
    assert said.startswith("query: expected a parameter of this operation (on_conflict); got ")
    assert "misspelt" not in served.stored()


def test_patch_gives_another_due_instant(served: Served, client: httpx.Client) -> None:
    due = post(client, id="moved").json()["due_at_ms"]
    answer = client.patch(f"{ORDERS}/moved", json={"delay": "2h"})
    assert (answer.status_code, answer.json()["status"]) == (200, "rescheduled")
    assert answer.json()["due_at_ms"] >= due + 105 * 60_000
    at_ms = due + 3_600_000
    assert client.patch(f"{ORDERS}/moved", json={"at": at_ms}).json()["due_at_ms"] == at_ms
    assert served.stored()["moved"].due_at_ms == at_ms


@pytest.mark.parametrize(
    ("status", "content", "said"),
    [
        (400, b"", "expected a JSON object with delay or at"),
        (422, b"{}", "got neither"),
        (422, b'{"delay": "1s", "at": 1}', "got both"),
        (422, b'{"delay": "31d"}', "max_delay"),
        (422, b'{"dealy": "1d"}', "unknown field 'dealy', did you mean delay?"),
        (422, b'{"due": "1d"}', "unknown field 'due': expected one of delay, at"),
        (413, b" " * 5000, "at most 4096 bytes"),
    ],
)
def test_patch_of_a_wrong_request_says_what_was_expected(
    client: httpx.Client, status: int, content: bytes, said: str
) -> None:
    post(client, id="kept")
    answer = client.patch(f"{ORDERS}/kept", content=content, headers=JSON)
    assert said in problem(answer, status)["detail"]


def test_patch_of_another_type_is_refused(client: httpx.Client) -> None:
    problem(client.patch(f"{ORDERS}/a", content=b"delay=1s"), 415)
    problem(client.patch(f"{ORDERS}/unknown", json={"delay": "1s"}), 404)


def test_deliver_now_makes_it_due(served: Served, client: httpx.Client) -> None:
    due = post(client, id="hurry").json()["due_at_ms"]
    answer = client.post(f"{ORDERS}/hurry/deliver-now")
    assert answer.status_code == 200
    assert answer.json()["due_at_ms"] < due - 890_000


def test_delete_cancels(served: Served, client: httpx.Client) -> None:
    post(client, id="gone")
    answer = client.delete(f"{ORDERS}/gone")
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert "gone" not in served.stored()
    assert problem(client.delete(f"{ORDERS}/gone"), 404)["answer"]["status"] == "unknown"


@pytest.mark.parametrize(
    "hostile",
    HOSTILE,
)
def test_hostile_id_is_an_id_like_any_other(
    served: Served, client: httpx.Client, hostile: str
) -> None:
    path = f"{ORDERS}/{quote(hostile, safe='')}"
    assert post(client, id=hostile).json()["id"] == hostile
    assert hostile in served.stored()
    assert client.get(path).json()["id"] == hostile
    assert client.patch(path, json={"delay": "1h"}).json()["status"] == "rescheduled"
    assert client.post(f"{path}/deliver-now").json()["status"] == "rescheduled"
    assert client.delete(path).json()["status"] == "cancelled"


@pytest.mark.parametrize("hostile", ["", "x" * 1024, "a\nb", "a\x00b"])
def test_id_that_no_envelope_may_have_is_refused(client: httpx.Client, hostile: str) -> None:
    assert "id: expected" in problem(post(client, id=hostile), 422)["detail"]
    path = f"{ORDERS}/{quote(hostile, safe='')}"
    assert client.get(path).status_code in (404, 405)


def test_id_with_a_line_break_at_its_end_is_another_one(
    served: Served, client: httpx.Client
) -> None:
    post(client, id="kept-whole")
    problem(client.delete(f"{ORDERS}/kept-whole%0A"), 404)
    assert "kept-whole" in served.stored()


def test_stats_and_routes_count_what_waits(served: Served, client: httpx.Client) -> None:
    post(client, "/v1/routes/small/envelopes", id="counted")
    stats = client.get("/v1/routes/small/stats").json()
    assert (stats["route"], stats["pending"]) == ("small", len(served.stored("small")))
    routes = client.get("/v1/routes").json()["routes"]
    assert [each["route"] for each in routes] == list(served.config.routes)
    with served.client("shop") as shop:
        assert [each["route"] for each in shop.get("/v1/routes").json()["routes"]] == ["orders"]
    problem(client.get("/v1/routes/nowhere/stats"), 404)


def test_histogram_counts_what_falls_due(served: Served, client: httpx.Client) -> None:
    path = "/v1/routes/exchange"
    for name in served.stored("exchange"):  # of other tests
        client.delete(f"{path}/envelopes/{quote(name, safe='')}")
    for delay in ("5m", "35m", "36m", "2h"):
        assert post(client, f"{path}/envelopes", delay=delay).status_code == 201
    found = client.get(f"{path}/histogram", params={"horizon": "hour", "buckets": 2}).json()
    assert [each["pending"] for each in found["buckets"]] == [1, 2]
    assert found["buckets"][0]["from_ms"] == found["now_ms"]
    assert len(client.get(f"{path}/histogram").json()["buckets"]) == 24
    for wrong in ("horizon=year", "buckets=0", "buckets=x", "buckets=99999999999"):
        problem(client.get(f"{path}/histogram?{wrong}"), 400)
    problem(client.get("/v1/routes/nowhere/histogram"), 404)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"delay": 5}', 'delay: expected a duration such as "15m"; got 5'),
        (b'{"at": 1e3}', "at: expected RFC 3339 with an offset, or epoch milliseconds; got 1e3"),
        (b'{"at": "9999-12-31T23:59:59Z"}', "; got '9999-12-31T23:59:59Z'"),
        (b'{"dealy": "1h"}', "unknown field 'dealy', did you mean delay?"),
    ],
)
def test_patch_of_a_wrong_field_says_the_same_as_a_post(
    client: httpx.Client, content: bytes, said: str
) -> None:
    path = f"{ORDERS}/any"
    patched = problem(client.patch(path, content=content, headers=JSON), 422)["detail"]
    assert patched.endswith(said)
    content = b'{"body": "x", ' + content[1:]
    assert problem(client.post(ORDERS, content=content, headers=JSON), 422)["detail"] == patched


@pytest.mark.parametrize("digits", ["0000000013000000", "000000001" + "9" * 5000, "\u0665"])
def test_ask_for_buckets_in_many_digits_is_refused_as_a_number(
    client: httpx.Client, digits: str
) -> None:
    answer = client.get("/v1/routes/orders/histogram", params={"buckets": digits})
    assert "buckets: expected a whole number, 1 to " in problem(answer, 400)["detail"]


@pytest.mark.parametrize("path", ["/v1/routes/", "/v1/routes/orders/stats/", "/livez/"])
def test_get_path_with_a_slash_at_its_end_is_404_and_leads_nowhere(
    client: httpx.Client, path: str
) -> None:
    answer = client.get(path, headers={"Host": "evil.example"})
    problem(answer, 404)
    assert "location" not in answer.headers


def dead_or_in_hand(served: Served, *, is_dead: bool) -> None:
    """See to it that what is due on route small is claimed, or dead."""
    connection = open_connection(served.config.store.url)
    try:
        store = RouteStore(connection, served.config.store.namespace, "small", 1).of("any")
        # A delay of 0 ends with the millisecond in which it began.
        wait_until(lambda: store.promote()[0].ready, "what is due")
        claim = store.claim(10, 60_000)
        if is_dead:
            store.bury(claim.token, [burial(each, Reason.INVALID) for each in claim.ids])
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "status", "why"),
    [
        ("PATCH", "in_flight", "being delivered"),
        ("DELETE", "in_flight", "no other will be tried"),
        ("PATCH", "dead", "replay"),
        ("DELETE", "dead", "replay"),
    ],
)
def test_change_that_comes_too_late_is_refused(
    served: Served, client: httpx.Client, method: str, status: str, why: str
) -> None:
    small, name = "/v1/routes/small/envelopes", f"late-{status}-{method}"
    post(client, small, id=name, delay="0s")
    dead_or_in_hand(served, is_dead=status == "dead")
    given = {"json": {"delay": "1h"}} if method == "PATCH" else {}
    found = problem(client.request(method, f"{small}/{name}", **given), 409)  # type: ignore[arg-type]
    assert found["answer"] == {"id": name, "route": "small", "status": status}
    assert why in found["detail"]


def test_log_has_neither_ids_nor_bodies_nor_secrets(served: Served, client: httpx.Client) -> None:
    post(client, id="canary-id", body="canary-body")
    client.get(f"{ORDERS}/canary-id?x=canary-query")
    client.get("/canary-path")

    def statuses() -> list[int]:
        return [each["status"] for each in served.logged("http")[-3:]]

    wait_until(lambda: statuses() == [201, 400, 404], "the three lines")
    text = (served.home / "log").read_text()
    assert "canary" not in text
    assert "all-secret" not in text
    line = served.logged("http")[-2]
    assert (line["method"], line["status"], line["token"]) == ("GET", 400, "all")
    assert line["path"] == "/v1/routes/{route}/envelopes/{id}"


def test_probes_answer_without_a_token(served: Served) -> None:
    with served.client(None) as anybody:
        assert anybody.get("/livez").text == "ok"
        assert anybody.get("/readyz").status_code == 200
        assert anybody.get("/openapi.json").json()["openapi"] == "3.1.0"
        problem(anybody.get("/metrics"), 401)
