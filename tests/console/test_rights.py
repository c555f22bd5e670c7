"""Who may see and do what: sessions, tokens, routes, and forms that were sent from elsewhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import Page, expect

from duebridge.admin.operator import Operator
from duebridge.console.sessions import COOKIE, LASTS_S, Sessions
from duebridge.http.problems import PROBLEM
from duebridge.http.tokens import TokenFile
from tests.console.conftest import Person, log_in
from tests.console.scene import NAMED_ID, Scene, filled_scene
from tests.console.served import OPERATE, READ, SCHEDULE, served_console, token_file, tokens_text
from tests.support.servers import wait_until

ORDERS = {"route": "order-timeout", "id": NAMED_ID}
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
CARTS = {"route": "cart-reminder", "id": "cart-1000"}


# --- the session ---


@pytest.mark.parametrize("path", ["/", "/route?route=a", "/search?id=x", "/dead", "/configuration"])
def test_look_without_session_leads_to_the_log_in(path: str, client: httpx.Client) -> None:
    response = client.get(path)
    assert response.status_code == 303
    assert response.headers["location"].startswith("/login")
    assert client.get(path, headers={"HX-Request": "true"}).headers["hx-redirect"]


def test_log_in_returns_to_the_page_that_was_asked_for(person: Person) -> None:
    person.page.goto("/dead?route=invoice-dunning")
    person.page.get_by_label("Token").fill(OPERATE)
    person.page.get_by_role("button", name="Log in").click()
    expect(person.page).to_have_url(re.compile(r"/dead\?route=invoice-dunning$"))


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil",
        "/a\nb",
        "javascript:1",
    ],
)
def test_log_in_leads_nowhere_else(elsewhere: str, client: httpx.Client) -> None:
    response = client.post("/login", data={"token": OPERATE, "next": elsewhere})
    assert response.headers["location"] == "/"


@pytest.mark.parametrize("path", ["/dead/", "/nowhere", "/dead/nowhere", "/envelope/cancel"])
def test_look_where_no_page_is_finds_a_page_that_says_so(path: str, client: httpx.Client) -> None:
    """With the navigation for who has a session, and for others without."""
    for secret in ("", OPERATE):
        if secret:
            log_in(client, secret)
        response = client.get(path, headers={"Host": "evil.example", **BROWSER})
        assert response.status_code == 404
        assert f"got {path}</p>" in response.text
        assert '<a class="button" href="/">' in response.text
        assert ('href="/workers"' in response.text) == bool(secret)
        assert "location" not in response.headers
        assert "default-src 'none'" in response.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/v1/nowhere", BROWSER), ("/v1", BROWSER), ("/dead/", {}), ("/nowhere", {})],
)
def test_ask_of_a_program_where_nothing_is_finds_a_problem(
    path: str, headers: dict[str, str], client: httpx.Client
) -> None:
    response = client.get(path, headers=headers)
    assert response.status_code == 404
    assert response.headers["content-type"] == PROBLEM


def test_wrong_token_gets_no_session(client: httpx.Client) -> None:
    response = client.post("/login", data={"token": "guessed"})
    assert response.status_code == 401
    assert "No such token" in response.text
    assert COOKIE not in response.cookies


def test_session_cookie_holds_no_secret_and_is_kept_from_scripts(client: httpx.Client) -> None:
    cookie = client.post("/login", data={"token": OPERATE}).headers["set-cookie"]
    by_tls = {"X-Forwarded-Proto": "https"}
    proxied = client.post("/login", data={"token": OPERATE}, headers=by_tls)
    assert "Secure" in proxied.headers["set-cookie"]
    assert "Secure" not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert OPERATE not in cookie


def test_log_out_ends_the_session_in_this_browser(operator: Page) -> None:
    operator.get_by_role("button", name="Log out").first.click()
    expect(operator.get_by_role("heading", level=1)).to_have_text("Log in")
    operator.goto("/workers")
    expect(operator.get_by_role("heading", level=1)).to_have_text("Log in")


def test_session_of_another_process_is_known_until_it_ends_or_its_token_does() -> None:
    text, now_ms = tokens_text(), 1_000_000
    clock = iter(float(second) for second in range(0, 10_000, 10))
    tokens = TokenFile(lambda: text, lambda: next(clock))
    one, other = (Sessions(tokens, lambda: now_ms) for _ in range(2))
    (maria,) = tokens.named("maria")
    session = one.begin(maria)
    assert other.read(session.cookie) == session
    now_ms += LASTS_S * 1000
    assert other.read(session.cookie) is None
    now_ms = 1_000_000
    text = text.replace("maria", "mario")
    assert other.read(session.cookie) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda cookie: cookie.replace("audit", "maria"),
        lambda cookie: cookie[:-1] + ("A" if cookie[-1] != "A" else "B"),
        lambda cookie: re.sub(r"~(\d+)~", lambda found: f"~{int(found[1]) + 1}~", cookie),
        lambda cookie: "",
        lambda cookie: cookie * 100,
    ],
    ids=["name", "signature", "end", "empty", "long"],
)
def test_forged_session_is_none(change: object, client: httpx.Client, address: str) -> None:
    assert callable(change)
    log_in(client, READ)
    forged = change(client.cookies[COOKIE])
    assert httpx.get(address, cookies={COOKIE: forged}).status_code == 303


# --- rights ---


def test_token_without_scope_sees_nothing(client: httpx.Client) -> None:
    client.post("/login", data={"token": SCHEDULE})
    response = client.get("/")
    assert response.status_code == 403
    assert "order-timeout" not in response.text


def test_reader_sees_no_route_of_others(reader: Page, client: httpx.Client) -> None:
    for path in ("/", "/dead", "/due", "/search", "/workers", "/configuration"):
        reader.goto(path)
        assert "order-timeout" not in reader.get_by_role("main").inner_html(), path
        assert "cart-reminder" in reader.get_by_role("main").inner_html(), path
    log_in(client, READ)
    for path in ("/route", "/dead", "/due", "/envelope", "/search"):
        params = {"id": NAMED_ID, "route": "order-timeout"}
        response = client.get(path, params=params)
        assert response.status_code == 404, path
        assert "Desk lamp" not in response.text
    assert "Nothing found" in client.get("/search", params={"id": NAMED_ID}).text


def test_reader_sees_the_intakes_of_the_own_routes(reader: Page, address: str) -> None:
    reader.goto("/workers")
    main = reader.get_by_role("main")
    expect(main.get_by_role("row").filter(has_text="retries")).to_contain_text("1,284")
    expect(main).not_to_contain_text("invoices")


def test_reader_is_offered_no_action(reader: Page) -> None:
    reader.goto("/envelope?route=cart-reminder&id=cart-1000")
    expect(reader.get_by_role("main")).to_contain_text("may not change envelopes")
    reader.goto("/dead?route=cart-reminder")
    expect(reader.get_by_role("main")).to_contain_text("may not replay or drop")
    for name in ("Deliver now", "Replay…", "Drop…"):
        assert reader.get_by_role("button", name=name).count() == 0


WRITES = {
    "/envelope/deliver-now": {},
    "/envelope/cancel": {},
    "/envelope/reschedule": {"delay": "1s"},
    "/dead/review": {"verb": "drop", "all": "1"},
    "/dead/settle": {"verb": "drop", "all": "1"},
}


@pytest.mark.parametrize("path", WRITES)
def test_reader_cannot_write(path: str, client: httpx.Client, scene: Scene) -> None:
    proof = log_in(client, READ)
    response = client.post(path, data={"proof": proof, **CARTS, **WRITES[path]})
    assert response.status_code == 403
    assert Operator(scene.config, scene.connection).show(**CARTS) is not None


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize(
    "how", ["no proof", "another's proof", "another site", "no site", "no session"]
)
def test_write_that_no_form_of_ours_sent_changes_nothing(
    path: str, how: str, client: httpx.Client, address: str, scene: Scene
) -> None:
    proof, headers = log_in(client, OPERATE), {}
    if how == "another's proof":
        with httpx.Client(base_url=address) as other:
            proof = log_in(other, OPERATE)
    elif how == "another site":
        headers = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
    elif how == "no site":
        headers = {"Origin": "http://[::1"}
    elif how == "no session":
        client.cookies.clear()
    data = {**ORDERS, **WRITES[path]} | ({} if how == "no proof" else {"proof": proof})
    response = client.post(path, data=data, headers=headers)
    assert response.status_code == (303 if how == "no session" else 403)
    assert Operator(scene.config, scene.connection).show(**ORDERS) is not None


def test_form_that_is_too_large_is_refused(client: httpx.Client) -> None:
    log_in(client, OPERATE)
    response = client.post("/envelope/cancel", content=b"x" * 1_100_000)
    assert response.status_code == 413
    assert "at most 1048576 bytes" in response.text


# --- what every answer says ---


def test_every_answer_forbids_foreign_code_and_frames(client: httpx.Client) -> None:
    log_in(client, OPERATE)
    for path in ("/", "/login", "/search", "/route?route=nowhere"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"


def test_pages_have_no_inline_code_or_style(client: httpx.Client) -> None:
    log_in(client, OPERATE)
    for path in ("/", "/login", "/search", "/due", "/dead?route=invoice-dunning"):
        text = client.get(path).text
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?! (defer )?src=)", text), path


def test_asset_is_kept_by_its_content(client: httpx.Client) -> None:
    addresses = re.findall(r'"(/static/[^"]+)"', client.get("/login").text)
    assert len(addresses) >= 3
    for each in addresses:
        response = client.get(each)
        assert response.status_code == 200
        assert "immutable" in response.headers["cache-control"]
    assert client.get("/static/../sessions.py").status_code == 404


@pytest.mark.parametrize("count", ["9" * 5000, "\u0665", "x", "-1"])
def test_look_with_a_count_that_is_none_tells_of_no_settling(
    client: httpx.Client, count: str
) -> None:
    log_in(client, OPERATE)
    response = client.get("/dead", params={"route": "invoice-dunning", "replayed": count})
    assert response.status_code == 200
    assert 'role="status"' not in response.text


def test_write_whose_token_is_removed_amid_its_form_changes_nothing(
    scene: Scene, tmp_path: Path
) -> None:
    tokens = token_file(tmp_path)
    with served_console(scene, tokens) as url, httpx.Client(base_url=url) as client:
        form = urlencode({"proof": log_in(client, OPERATE), **ORDERS}).encode()

        def slowly() -> Iterator[bytes]:
            yield form[:9]
            (tmp_path / "tokens.yaml").write_text("[]")
            wait_until(lambda: client.get("/workers").status_code == 303, "the end of the token")
            yield form[9:]

        with httpx.Client(base_url=url, cookies=client.cookies) as slow:
            answer = slow.post("/envelope/cancel", content=slowly(), headers=FORM)
        assert (answer.status_code, answer.headers["location"][:6]) == (303, "/login")
    assert Operator(scene.config, scene.connection).show(**ORDERS) is not None


# --- without tokens, and behind a proxy ---


def test_console_without_tokens_needs_no_log_in(scene: Scene) -> None:
    with served_console(scene) as url, httpx.Client(base_url=url) as anybody:
        assert "Overview" in anybody.get("/").text
        assert anybody.get("/", headers={"Host": "rebound.example"}).status_code == 421
        assert anybody.post("/envelope/cancel", data=ORDERS).status_code == 403
    assert Operator(scene.config, scene.connection).show(**ORDERS) is not None


def test_bearer_of_a_proxy_begins_a_session(address: str) -> None:
    response = httpx.get(address, headers={"Authorization": f"Bearer {READ}"})
    assert response.status_code == 200
    assert COOKIE in response.cookies
    assert httpx.get(address, headers={"Authorization": "Bearer guessed"}).status_code == 303


def test_bearer_of_somebody_else_ends_the_former_session(client: httpx.Client) -> None:
    proof = log_in(client, OPERATE)
    other = {"Authorization": f"Bearer {READ}"}
    denied = client.post("/envelope/cancel", data={"proof": proof, **ORDERS}, headers=other)
    assert denied.status_code == 403
    assert "order-timeout" not in client.get("/", headers=other).text
    assert "order-timeout" not in client.get("/").text, "the former session outlived the sign-on"


def test_store_that_is_away_is_told(tmp_path: Path) -> None:
    with filled_scene(tmp_path) as other, served_console(other) as url:
        assert httpx.get(url).status_code == 200
        other.connection.client.shutdown(nosave=True)
        response = httpx.get(url, timeout=30)
        assert response.status_code == 503
        assert "The delay store is away" in response.text


def test_route_that_a_token_may_not_see_is_unknown_in_every_form(client: httpx.Client) -> None:
    """The names of other routes are not told either, where a glob covers a name without a route."""
    log_in(client, READ)
    for route in ("order-timeout", "cart-nothing"):
        response = client.get("/search", params={"route": route, "key": "k"})
        assert response.status_code == 404
        assert "invoice-dunning" not in response.text
