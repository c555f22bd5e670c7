"""Two versions on one store: at once while an upgrade rolls, one after the other, and back."""

import json
import signal
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from duebridge.amqp_fields import field
from duebridge.config.load import load_config
from duebridge.producer import Producer
from duebridge.store.server.connection import open_connection
from tests.acceptance.site import LONG_LEASE, Site, fetch
from tests.support.checkout import copy_tree, environment
from tests.support.command import wait_until
from tests.support.versions import CURRENT, Version, previous

pytestmark = [pytest.mark.timeout(120), pytest.mark.long]

BOTH_WAYS = [("previous", "current"), ("current", "previous")]
COUNT = 400
NEXT_LAYOUT = {
    "\nLAYOUT = 1 ": "\nLAYOUT = 3 ",
    "\nNEWEST_LAYOUT = 2 ": "\nNEWEST_LAYOUT = 3 ",
    "if data[:1] < bytes([LAYOUT]) or": "if not data[0] or",
    r"local LAYOUT, NEWEST_LAYOUT = '\1', '\2'": r"local LAYOUT, NEWEST_LAYOUT = '\3', '\3'",
    "return (layout == LAYOUT or layout == NEWEST_LAYOUT) and #record >= PREFIX_BYTES": (
        "return layout and #record >= PREFIX_BYTES and string.byte(layout) <= 3"
    ),
}


def following(home: Path) -> Version:
    """Make the next version: it writes record layout 3, and reads the earlier ones as well."""
    where = home / "following"
    copy_tree(where)
    for old, new in NEXT_LAYOUT.items():
        _change(where, old, new)
    return Version(sys.executable, environment(where)["PYTHONPATH"], where)


def _change(tree: Path, old: str, new: str) -> None:
    files = [each for part in ("bridge", "lua") for each in (tree / part).rglob("*record.*")]
    [found] = [each for each in files if each.is_file() and each.read_text().count(old) == 1]
    found.write_text(found.read_text().replace(old, new))


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Version]:
    home = tmp_path_factory.mktemp("versions")
    return {"previous": previous(), "current": CURRENT, "following": following(home)}


def test_previous_and_current_workers_on_one_store_deliver_each_once(
    site: Site, code: dict[str, Version]
) -> None:
    versions = ("previous", "current")
    ids = {name: [f"{name}-{number}" for number in range(COUNT)] for name in versions}
    site.file.write_text(site.file.read_text().replace("lease: 3s", LONG_LEASE))
    with site.running(code=code["previous"]) as old, site.running(code=code["current"]) as new:
        for name in versions:
            delays = {each: f"{5 * place}ms" for place, each in enumerate(ids[name])}
            gone = {f"{name}-cancelled-by-{by}": by for by in versions}
            site.send("orders", {**delays, **dict.fromkeys(gone, "1h")}, code["current"])
            for each, by in gone.items():
                cancelled = site("cancel", "orders", each, code=code[by])
                assert (cancelled.code, cancelled.out.split()[0]) == (0, "cancelled")
        wait_until(lambda: len(site.delivered()) >= 2 * COUNT, "all to be delivered")
        assert (old.end(), new.end()) == (0, 0)
    assert Counter(site.delivered()) == Counter(ids["previous"] + ids["current"])
    assert sum(site.states("orders").values()) == 0
    by_code = {each.code for each in site.records()}
    assert len(by_code) == 2
    assert {name for name in versions if any(is_of(code[name], each) for each in by_code)} == {
        *versions
    }


@pytest.mark.parametrize(("writer", "reader"), BOTH_WAYS, ids=["upgrade", "rollback"])
def test_every_state_that_one_version_leaves_is_taken_over_by_the_other(
    site: Site, code: dict[str, Version], writer: str, reader: str
) -> None:
    leave_every_state(site, code[writer])

    def ask(*words: str) -> str:
        done = site(*words, "--output", "json", code=code[reader])
        assert done.code == 0, done
        return str(json.loads(done.out)["status"])

    assert ask("cancel", "orders", "gone") == "cancelled"
    assert ask("reschedule", "orders", "later", "--delay", "0s") == "rescheduled"
    assert ask("reschedule", "orders", "fail-1", "--delay", "0s") == "rescheduled"
    assert ask("dead", "replay", "orders", "reject-1") == "replayed"
    again = ("send", "orders", "body of seen", "--delay", "0s", "--id", "seen")
    assert ask(*again) == "duplicate"
    with site.running(code=code[reader]) as worker:
        wait_until(lambda: len(site.delivered()) >= 5, "what was left to be delivered")
        assert worker.end() == 0
    attempts = {each.id: each.attempt for each in site.records()}
    assert attempts == {"seen": 1, "later": 1, "fail-1": 2, "reject-1": 2, "kill-1": 2}
    assert len(site.records()) == len(attempts)
    assert sum(site.states("orders").values()) == 0


def leave_every_state(site: Site, code: Version) -> None:
    """Have something pending, in retry, dead, remembered, and held by a worker that died."""
    site.send("orders", {"later": "1h", "gone": "1h"}, code)
    site.send("orders", {"seen": "0s", "fail-1": "0s", "reject-1": "0s"}, code)
    with site.running(code=code) as worker:
        settled = {"pending": 2, "ready": 0, "unack": 0, "retry": 1, "dead": 1}
        wait_until(lambda: site.states("orders") == settled, "the others to be settled")
        site.send("orders", {"kill-1": "0s"}, code)
        assert worker.wait() == -signal.SIGKILL
    assert site.states("orders") == {**settled, "unack": 1}


def test_header_that_the_previous_version_cannot_read_waits_for_a_worker_of_this_one(
    site: Site, code: dict[str, Version]
) -> None:
    """Such as the `x-death` of what an intake takes from RabbitMQ while the upgrade rolls."""
    with site.running(code=code["previous"]) as old:
        config = load_config(site.file)
        with closing(open_connection(config.store.url)) as connection:
            died = {"x-death": field("A", bytes(4))}
            Producer(config, connection).schedule("others", b"", id="a", delay="0s", headers=died)
        wait_until(lambda: "record_too_new" in old.events(), "the older worker to meet it")
        waiting = {"pending": 0, "ready": 1, "unack": 0, "retry": 0, "dead": 0}
        wait_until(lambda: site.states("others") == waiting, "it to be given back")
        with site.running() as new:
            wait_until(site.delivered, "this version to deliver it")
            assert new.end() == 0
        assert old.end() == 0
        assert old.events().count("record_too_new") == 1
    assert [(each.id, each.topic) for each in site.records()] == [("a", "others")]
    assert is_of(CURRENT, site.records()[0].code)


def test_worker_that_meets_a_newer_record_layout_leaves_it_and_serves_the_other_routes(
    site: Site, code: dict[str, Version]
) -> None:
    with site.running("--health-port", "0") as worker:
        site.send("others", {"newer-1": "0s", "newer-2": "0s"}, code["following"])
        wait_until(lambda: "record_too_new" in worker.events(), "the worker to meet it")
        wait_until(lambda: site.states("others")["unack"] == 0, "it to be given back")
        port = worker.health_port()
        unready = (503, "route others: its records need a newer duebridge\n")
        wait_until(lambda: fetch(port, "/readyz") == unready, "the worker to be unready")
        site.send("others", {"older-1": "0s"})
        site.send("orders", {"other-1": "0s"})
        wait_until(lambda: site.delivered() == ["other-1"], "the other route to flow")
        roll_forward_and_back(site, code["following"])
        assert worker.end() == 0
    with site.running("--health-port", "0") as worker:
        site.send("others", {"older-2": "0s"})
        wait_until(lambda: "older-2" in site.delivered(), "the older worker to serve it again")
        assert fetch(worker.health_port(), "/readyz") == (200, "ok\n")
    assert Counter(site.delivered()) == Counter(
        ["other-1", "newer-1", "newer-2", "older-1", "older-2"]
    )


def roll_forward_and_back(site: Site, newer_code: Version) -> None:
    """Let a newer worker deliver what only it can read, and all that waits behind."""
    with site.running("--until-empty", code=newer_code) as newer:
        assert newer.wait() == 0
    newest = [each for each in site.records() if each.id.startswith(("newer", "older"))]
    assert len(newest) == 3
    assert all(is_of(newer_code, each.code) for each in newest)


def is_of(version: Version, code: str) -> bool:
    return Path(code).is_relative_to(version.where)


def test_route_that_a_newer_version_opened_first_is_refused_by_an_older_one(
    site: Site, code: dict[str, Version]
) -> None:
    site.send("orders", {"newer-1": "1h"}, code["following"])
    refused = site("run")
    assert refused.code == 3
    assert "expected record layout 2 or older; the store has 3: upgrade duebridge" in refused.err
