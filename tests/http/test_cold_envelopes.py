"""Envelopes of a route with a cold tier, which may be in its files."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.serving import CONFIG, Served, serving

PATH = "/v1/routes/small/envelopes"


@pytest.fixture
def served(tmp_path: Path, store_url: str) -> Iterator[Served]:
    """A server whose route `small` has a cold tier at `tmp_path`."""
    small = {**CONFIG["routes"]["small"], "cold_tier": {"path": str(tmp_path), "horizon": "2h"}}
    config = {**CONFIG, "routes": {"small": small}}
    with serving(tmp_path / "cold", store_url, config) as served:
        yield served


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """The log of a cold tier that cannot be read."""
    log = tmp_path / "route=small" / "_commits"
    log.mkdir(parents=True)
    (log / f"{1:020}.json").write_text("damaged")
    return log


def test_change_of_what_may_be_cold_is_recorded(client: httpx.Client) -> None:
    moved = client.patch(f"{PATH}/moved", json={"delay": "3h"})
    ended = client.delete(f"{PATH}/ended")
    assert (moved.status_code, moved.json()["status"]) == (202, "recorded")
    assert (ended.status_code, ended.json()["status"]) == (202, "recorded")


def test_get_where_the_cold_tier_cannot_be_read_says_so(
    served: Served, client: httpx.Client, damaged: Path
) -> None:
    """It may be there: 404 would be false, and 500 is nobody's to mend."""
    client.post(PATH, json={"id": "warm", "body": "x", "delay": "15m"})
    refused = client.get(f"{PATH}/unknown")
    assert client.get(f"{PATH}/warm").status_code == 200
    assert client.delete(f"{PATH}/warm").status_code == 200
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
    assert refused.headers["content-type"] == "application/problem+json"
    found = refused.json()
    assert (found["title"], found["status"]) == ("The cold tier cannot be read", 503)
    assert str(damaged) in found["detail"]
    (logged,) = served.logged("cold_tier_unreadable")
    assert (logged["route"], logged["error"]) == ("small", found["detail"])


def test_envelope_where_the_cold_tier_cannot_be_read_shows_why(
    client: httpx.Client, damaged: Path
) -> None:
    client.post(PATH, json={"id": "ended", "body": "x", "delay": "15m"})
    client.delete(f"{PATH}/ended")
    for name, status in (("unknown", 503), ("ended", 200)):
        page = client.get("/envelope", params={"route": "small", "id": name})
        assert (page.status_code, str(damaged) in page.text) == (status, True)
