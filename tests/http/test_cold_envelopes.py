"""Envelopes of a route with a cold tier, which may be in its files."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.serving import CONFIG, serving

PATH = "/v1/routes/small/envelopes"


@pytest.fixture
def client(tmp_path: Path, store_url: str) -> Iterator[httpx.Client]:
    """A client of a server whose route `small` has a cold tier at `tmp_path`."""
    small = {**CONFIG["routes"]["small"], "cold_tier": {"path": str(tmp_path), "horizon": "2h"}}
    config = {**CONFIG, "routes": {"small": small}}
    with serving(tmp_path / "cold", store_url, config) as served, served.client() as client:
        yield client


def test_change_of_what_may_be_cold_is_recorded(client: httpx.Client) -> None:
    moved = client.patch(f"{PATH}/moved", json={"delay": "3h"})
    ended = client.delete(f"{PATH}/ended")
    assert (moved.status_code, moved.json()["status"]) == (202, "recorded")
    assert (ended.status_code, ended.json()["status"]) == (202, "recorded")


def test_get_where_the_cold_tier_cannot_be_read_says_so(
    client: httpx.Client, tmp_path: Path
) -> None:
    """It may be there: 404 would be false, and 500 is nobody's to mend."""
    log = tmp_path / "route=small" / "_commits"
    log.mkdir(parents=True)
    (log / f"{1:020}.json").write_text("damaged")
    client.post(PATH, json={"id": "warm", "body": "x", "delay": "15m"})
    refused = client.get(f"{PATH}/unknown")
    assert client.get(f"{PATH}/warm").status_code == 200
    assert client.delete(f"{PATH}/warm").status_code == 200
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
    assert refused.headers["content-type"] == "application/problem+json"
    found = refused.json()
    assert (found["title"], found["status"]) == ("The cold tier cannot be read", 503)
    assert str(log) in found["detail"]
