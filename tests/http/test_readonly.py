"""A server whose store user may only look: it shows everything, and changes nothing."""

import re
from collections.abc import Iterator

import httpx
import pytest
import redis

from duebridge.http.problems import PROBLEM
from tests.support.redis.least import PASSWORD, grant, url_as
from tests.support.serving import SECRETS, serving

ENVELOPES = "/v1/routes/orders/envelopes"
LOOKS = [f"{ENVELOPES}/a", "/v1/routes", "/v1/routes/orders/stats", "/v1/routes/orders/histogram"]
LOOKS += ["/readyz", "/metrics"]
PAGES = ["/", "/route?route=orders", "/search?route=orders", "/envelope?route=orders&id=a"]
PAGES += ["/due?route=orders", "/dead", "/workers", "/configuration"]


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory, store_url: str) -> Iterator[httpx.Client]:
    """A client with every right, of a server that has none to change the store."""
    home = tmp_path_factory.mktemp("readonly")
    with serving(home, store_url) as writing, writing.client() as client:
        assert client.post(ENVELOPES, json={"body": "x", "delay": "1h", "id": "a"}).is_success
    with redis.Redis.from_url(store_url) as admin:
        grant(admin, home.name, "looks", role="readonly")
    url = url_as(store_url, "looks", PASSWORD)
    with serving(home, url) as reading, reading.client() as client:
        assert client.post("/login", data={"token": SECRETS["all"]}).status_code == 303
        yield client


@pytest.mark.parametrize("path", [*LOOKS, *PAGES])
def test_look_with_a_readonly_store_user_is_answered(path: str, looking: httpx.Client) -> None:
    response = looking.get(path)
    assert response.status_code == 200, response.text
    assert "refused us" not in response.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", ENVELOPES),
        ("PATCH", f"{ENVELOPES}/a"),
        ("DELETE", f"{ENVELOPES}/a"),
        ("POST", f"{ENVELOPES}/a/deliver-now"),
    ],
)
def test_write_with_a_readonly_store_user_changes_nothing_and_says_why(
    method: str, path: str, looking: httpx.Client
) -> None:
    before = looking.get(f"{ENVELOPES}/a").json()
    given = {"POST": {"body": "x", "delay": "1h", "id": "b"}, "PATCH": {"delay": "3h"}}
    response = looking.request(method, path, json=given.get(method))
    assert (response.status_code, response.headers["content-type"]) == (503, PROBLEM)
    assert "the delay store refused us" in response.json()["detail"]
    assert looking.get(f"{ENVELOPES}/a").json() == before
    assert looking.get(f"{ENVELOPES}/b").status_code == 404


def test_action_of_the_console_with_a_readonly_store_user_says_why(looking: httpx.Client) -> None:
    page = looking.get("/envelope?route=orders&id=a")
    (proof,) = set(re.findall(r'name="proof" value="([^"]+)"', page.text))
    form = {"proof": proof, "route": "orders", "id": "a"}
    response = looking.post("/envelope/cancel", data=form)
    assert "the delay store refused us" in response.text
    assert looking.get(f"{ENVELOPES}/a").is_success
