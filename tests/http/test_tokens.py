"""Tokens: what each may do, on which routes, and a file that changes while it is served."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from duebridge.errors import ConfigError
from duebridge.http.access import Rates
from duebridge.http.problems import ProblemError
from duebridge.http.tokens import (
    LOOK_EVERY_S,
    NoTokens,
    Scope,
    Token,
    TokenFile,
    digest_of,
    new_secret,
    read_tokens,
)
from tests.support.command import Command
from tests.support.servers import wait_until
from tests.support.serving import JSON, ORDERS, Served, serving

GOOD = {"name": "shop", "sha256": digest_of("s"), "scopes": ["schedule"]}


@pytest.mark.parametrize(
    ("scopes", "scope", "may"),
    [
        (("schedule",), "schedule", True),
        (("schedule",), "read", False),
        (("read",), "read", True),
        (("read",), "operate", False),
        (("operate",), "read", True),
        (("operate",), "schedule", False),
    ],
)
def test_token_may_what_its_scopes_say(scopes: tuple[Scope, ...], scope: Scope, may: bool) -> None:
    token = Token("t", "", scopes, ("order-*", "exact"))
    assert token.may(scope) is may
    assert token.may(scope, "order-1") is may
    assert token.may(scope, "exact") is may
    assert not token.may(scope, "Order-1")
    assert not token.may(scope, "exact-not")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "a b"}, "letters, digits"),
        ({"name": "x" * 65}, "at most 64"),
        ({"sha256": "A" * 64}, "64 hexadecimal digits"),
        ({"scopes": []}, "at least one of"),
        ({"scopes": ["write"]}, "shop: scopes: expected schedule, read, operate; got 'write'"),
        ({"routes": []}, "shop: routes: expected at least one"),
        ({"route": "x"}, "route"),
        ({"sha256": digest_of("")}, "got that of an empty text"),
    ],
)
def test_token_of_a_wrong_form_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=r"^serve\.tokens: ") as refused:
        read_tokens(json.dumps([{**GOOD, **change}]))
    assert said in str(refused.value)


NO_LISTS = [
    *("", "a: b", "- [", "- 1", "secret-canary", "!!python/x y", "&a [*a]"),
    *("- {name: 2026-13-45}", "[" * 5000, "!!bool canary", "!!int ''", "!!timestamp canary"),
]


@pytest.mark.parametrize("text", NO_LISTS, ids=lambda text: text[:20])
def test_tokens_that_are_no_list_are_refused_without_their_text(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a YAML list") as refused:
        read_tokens(text)
    assert "canary" not in str(refused.value)


class File:
    """The text of a file, and a clock."""

    def __init__(self) -> None:
        self.text = json.dumps([GOOD])
        self.now = 0.0

    def read(self) -> str:
        if not self.text:
            raise ConfigError("file: cannot be read")
        return self.text

    def change(self, text: str) -> None:
        self.text = text
        self.now += LOOK_EVERY_S


def test_token_file_reads_what_changed_and_keeps_the_former_where_it_is_broken() -> None:
    file = File()
    tokens = TokenFile(file.read, lambda: file.now)
    assert (tokens.find("s") or GOOD) == Token("shop", digest_of("s"), ("schedule",))
    assert tokens.find("other") is tokens.find("") is None
    for broken in ("[", "- {}", *NO_LISTS):
        file.change(broken)
        assert tokens.find("s") is not None
    file.change(json.dumps([GOOD, {**GOOD, "sha256": digest_of("new")}]))
    assert tokens.find("s") is not None
    assert tokens.find("new") is not None, "a name may have two secrets"
    file.change(json.dumps([{**GOOD, "sha256": digest_of("new")}]))
    assert tokens.find("s") is None
    assert NoTokens().find("") is not None


def test_request_without_a_secret_is_none_of_any_token() -> None:
    tokens = TokenFile(lambda: json.dumps([GOOD]))
    tokens._tokens = [(bytes.fromhex(digest_of("")), Token("empty", "", ("operate",)))]
    assert tokens.find("") is None


def test_secret_has_more_than_128_bits_and_comes_once() -> None:
    assert len({new_secret() for _ in range(100)}) == 100
    assert len(new_secret()) >= 43


def test_rate_gives_a_burst_then_one_by_one() -> None:
    now = [100.0]
    rates, token = Rates(10, lambda: now[0]), Token("t", "", ("schedule",))
    for _ in range(10):
        rates.check(token)
    with pytest.raises(ProblemError) as refused:
        rates.check(token)
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
    rates.check(Token("other", "", ("schedule",)))
    now[0] += 0.11
    rates.check(token)
    assert rates.wait_s(token, 10) == pytest.approx(1.0, abs=0.05)


MANY = [
    ("GET", "/v1/routes", {"all": 200, "shop": 200, "viewer": 200}),
    ("GET", "/v1/routes/orders/stats", {"all": 200, "shop": 200, "viewer": 200}),
    ("GET", "/v1/routes/small/stats", {"all": 200, "shop": 403, "viewer": 200}),
    ("GET", "/v1/routes/unknown/stats", {"all": 404, "shop": 403, "viewer": 404}),
    ("POST", ORDERS, {"all": 201, "shop": 201, "viewer": 403}),
    ("POST", "/v1/routes/small/envelopes", {"all": 201, "shop": 403, "viewer": 403}),
    ("GET", "/v1/routes/orders/envelopes/x", {"all": 404, "shop": 404, "viewer": 404}),
    ("DELETE", "/v1/routes/orders/envelopes/x", {"all": 404, "shop": 404, "viewer": 403}),
    ("PATCH", "/v1/routes/orders/envelopes/x", {"all": 422, "shop": 422, "viewer": 403}),
    (
        "POST",
        "/v1/routes/orders/envelopes/x/deliver-now",
        {"all": 404, "shop": 403, "viewer": 403},
    ),
    ("GET", "/metrics", {"all": 200, "shop": 200, "viewer": 200}),
]


@pytest.mark.parametrize(("method", "path", "expected"), MANY)
def test_each_token_may_only_what_it_is_for(
    served: Served, method: str, path: str, expected: dict[str, int]
) -> None:
    given: Any = {"json": {"body": "x", "delay": "1h"}} if method in ("POST", "PATCH") else {}
    for name, status in expected.items():
        with served.client(name) as client:
            assert client.request(method, path, **given).status_code == status, name


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "stats"), ("GET", "histogram"), ("GET", "envelopes/x"), ("POST", "envelopes")],
)
def test_unknown_route_is_told_with_the_routes_of_the_token_alone(
    served: Served, method: str, path: str
) -> None:
    with served.client("shop") as shop:
        answer = shop.request(method, f"/v1/routes/order-zzz/{path}")
    assert answer.status_code == 404
    assert "(orders); got 'order-zzz'" in answer.json()["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic YWxsOnNlY3JldA=="},
        {"Authorization": "Bearer ключ".encode()},
    ],
)
def test_request_without_a_known_token_is_told_to_bring_one(
    served: Served, headers: dict[str, Any]
) -> None:
    for method, path, _ in MANY:
        answer = httpx.request(method, served.url + path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="duebridge"'
        assert answer.headers["content-type"] == "application/problem+json"


def test_tokens_are_read_anew_while_serving(tmp_path: Path, store_url: str) -> None:
    with serving(tmp_path / "reloading", store_url) as served, served.client("all") as client:
        file = served.home / "tokens.yaml"
        given = file.read_text()
        file.write_text("- broken")
        wait_until(
            lambda: client.get("/v1/routes").status_code and served.logged("tokens_refused"),
            "the refusal",
        )
        assert client.get("/v1/routes").status_code == 200
        file.write_text("[]")
        wait_until(lambda: client.get("/v1/routes").status_code == 401, "the end of the token")
        file.write_text(given)
        wait_until(lambda: client.get("/v1/routes").status_code == 200, "the token")


@pytest.mark.parametrize(
    ("method", "path", "parts"),
    [
        ("POST", ORDERS, (b'{"id": "late", "body":', b' "x", "delay": "1h"}')),
        ("PATCH", f"{ORDERS}/there", (b'{"delay":', b' "2h"}')),
    ],
)
def test_request_whose_token_is_removed_amid_its_body_changes_nothing(
    tmp_path: Path, store_url: str, method: str, path: str, parts: tuple[bytes, bytes]
) -> None:
    with serving(tmp_path / f"amid-{method}", store_url) as served, served.client() as client:
        there = {"id": "there", "body": "x", "delay": "1h"}
        assert client.post(ORDERS, json=there).status_code == 201
        before = served.stored()

        def body() -> Iterator[bytes]:
            yield parts[0]
            (served.home / "tokens.yaml").write_text("[]")
            wait_until(lambda: client.get("/v1/routes").status_code == 401, "the end of the token")
            yield parts[1]

        with served.client() as slow:
            assert slow.request(method, path, content=body(), headers=JSON).status_code == 401
        assert served.stored() == before


def test_server_without_tokens_serves_this_machine_alone(tmp_path: Path, store_url: str) -> None:
    with serving(tmp_path / "open", store_url, tokens=None) as served:
        path = f"{served.url}/v1/routes"
        assert httpx.get(path).status_code == 200
        assert httpx.get(path, headers={"Origin": served.url}).status_code == 200
        assert httpx.get(path, headers={"Host": "evil.example"}).status_code == 403
        assert httpx.get(path, headers={"Origin": "http://evil.example"}).status_code == 403


def test_command_makes_a_token_that_the_file_takes(duebridge: Command) -> None:
    done = duebridge("token", "shop", "--scopes", "schedule,read", "--routes", "order-*,a")
    secret, line = done.out.splitlines()
    (token,) = read_tokens(line)
    assert token == Token("shop", digest_of(secret), ("schedule", "read"), ("order-*", "a"))
    assert secret not in line
    made = duebridge("token", "shop", "--output", "json").json()
    assert made["line"]["sha256"] == digest_of(made["secret"])
    for wrong in (["a b"], ["shop", "--scopes", "write"], ["shop", "--scopes", ""]):
        assert duebridge("token", *wrong).code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--scopes", "read,foo"], "expected schedule, read, operate; got 'foo'"),
        (["--routes", ""], "routes: expected at least one"),
        (["--routes", " , "], "routes: expected at least one"),
    ],
)
def test_command_without_a_use_for_the_token_says_what_was_expected(
    duebridge: Command, words: list[str], said: str
) -> None:
    done = duebridge("token", "shop", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_calls_are_journalled_with_the_name_of_their_token(
    served: Served, duebridge: Command
) -> None:
    path = ORDERS
    with served.client("shop") as shop, served.client("all") as operator:
        sent = {"body": "x", "delay": "15m", "id": "noted"}
        assert shop.post(path, json=sent).status_code == 201
        assert shop.patch(f"{path}/noted", json={"delay": "1h"}).status_code == 200
        assert operator.delete(f"{path}/noted").status_code == 200
    file = str(served.home / "duebridge.yaml")
    events = duebridge("--config", file, "events", "orders", "--since", "1h", "--output", "json")
    found = [(each["kind"], each["by"]) for each in events.json_lines() if each["id"] == "noted"]
    assert found == [("accepted", "shop"), ("rescheduled", "shop"), ("cancelled", "all")]
