"""A server in the language of its machine: Lua compares texts by it, and so must compare numbers.

Under `en_US.UTF-8`, which many systems give to all they start, `a` comes before `B`.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from duebridge.store.connection import open_connection
from tests.support.desk import LEASE_MS, NOW_MS, YEAR_MS, Desk, envelope
from tests.support.servers import redis_server

SMALL_A = NOW_MS - NOW_MS % 256 + ord("a")
LARGE_B = NOW_MS - NOW_MS % 256 + ord("B")
assert LARGE_B < SMALL_A


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    home = tmp_path_factory.mktemp("locale")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCPATH", str(make_locale(home)))
        patch.setenv("LC_ALL", "en_US.UTF-8")
        with redis_server(home) as port:
            yield port


def make_locale(home: Path) -> Path:
    if not Path("/usr/share/i18n/locales/en_US").exists() or not shutil.which("localedef"):
        pytest.skip("no source of a locale here: install the package `locales`")
    target = home / "en_US.UTF-8"
    subprocess.run(["localedef", "-i", "en_US", "-f", "UTF-8", str(target)], check=True)
    return home


@pytest.fixture
def desk(port: int) -> Iterator[Desk]:
    opened = open_connection(f"redis://127.0.0.1:{port}")
    assert opened.client.eval("return 'a' < 'B' and 1 or 0", 0) == 1, "the locale took no effect"
    yield Desk(opened, "locale")
    opened.client.flushdb()
    opened.close()


def test_claim_in_any_locale_expires_what_is_over_and_nothing_else(desk: Desk) -> None:
    desk.clock.now_ms = LARGE_B - 1
    desk.schedule(envelope("later", at=0, expires=SMALL_A), envelope("now", at=0, expires=LARGE_B))
    desk.clock.now_ms = LARGE_B
    assert [each.id for each in desk.claim_all().leased] == ["later"]
    assert desk.state_of("now") == "dead"
    desk.clock.now_ms = LARGE_B - 1
    desk.schedule(envelope("over", at=0, expires=LARGE_B))
    desk.clock.now_ms = SMALL_A
    assert desk.claim_all().leased == []
    assert desk.state_of("over") == "dead"


def test_reschedule_in_any_locale_knows_what_is_before_an_expiry(desk: Desk) -> None:
    desk.clock.now_ms = LARGE_B - 1
    desk.schedule(envelope("a", at=0, expires=SMALL_A), envelope("b", at=0, expires=LARGE_B))
    assert desk.store.reschedule("a", str(LARGE_B), YEAR_MS)[0] == "rescheduled"
    assert desk.store.reschedule("b", str(SMALL_A), YEAR_MS)[0] == "expires_before_due"


def test_replay_in_any_locale_keeps_an_expiry_to_come(desk: Desk) -> None:
    desk.clock.now_ms = LARGE_B - 2000
    desk.dead(envelope("a", expires=SMALL_A))
    desk.clock.now_ms = LARGE_B
    assert desk.store.replay(["a"], [0]) == ["replayed"]
    assert desk.record_of("a").expires_at_ms == SMALL_A


def test_claim_in_any_locale_knows_a_newer_layout(desk: Desk) -> None:
    desk.suspect("a")
    desk.make_newer("a")
    desk.store.claim(1, LEASE_MS, alone=True)
    desk.run_out(poison=1)
    assert desk.state_of("a") == "suspect"
