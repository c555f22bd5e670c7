"""A snapshot is brought back: what ended since would come again, unless the journal is heeded."""

from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.acceptance.site import CONFIG, Site
from tests.support.backup import AT_ONCE, back_up, restored
from tests.support.command import wait_until
from tests.support.servers import redis_server

pytestmark = pytest.mark.timeout(120)

Move = Callable[[int], Site]


@pytest.fixture
def move(tmp_path: Path) -> Move:
    """Return the site, whose store is now the server at a port."""
    return lambda port: Site(tmp_path, CONFIG.format(url=f"redis://127.0.0.1:{port}/0"))


def lose_a_store(tmp_path: Path, move: Move) -> tuple[Path, list[str]]:
    """Return a backup, and the journal of what happened after it, until the store was lost."""
    (tmp_path / "lost").mkdir()
    with redis_server(tmp_path / "lost", "--appendonly", "yes", *AT_ONCE) as port:
        site = move(port)
        site.send("orders", {"kept": "1h", "goes": "1h", "taken-back": "1h"})
        site.send("others", {"dies": "1h"})
        back_up(port, tmp_path / "backup.rdb")
        assert site("cancel", "orders", "taken-back").code == 0
        assert site("reschedule", "orders", "goes", "--delay", "0s").code == 0
        assert site("reschedule", "others", "dies", "--delay", "0s").code == 0
        site.send("orders", {"accepted-since": "1h"})
        with site.running() as worker:
            wait_until(lambda: set(site.delivered()) == {"goes", "dies"}, "deliveries")
            assert worker.end() == 0
        return tmp_path / "backup.rdb", site("events", "--output", "json").out.splitlines()


@pytest.mark.long
def test_restore_that_heeds_the_journal_delivers_each_once_and_nothing_cancelled(
    tmp_path: Path, move: Move
) -> None:
    backup, journal = lose_a_store(tmp_path, move)
    with restored(backup, tmp_path / "restored") as port:
        site = move(port)
        newest = site("events", "--limit", "1").out.split()[0]
        for route, ids in (("orders", {"goes", "taken-back"}), ("others", {"dies"})):
            words = ("cancel", route, "-", "--ended-since", newest, "--output", "json")
            done = site(*words, stdin="\n".join(journal).encode())
            answers = {(each["id"], each["status"]) for each in done.json_lines()}
            assert answers == {(each, "cancelled") for each in ids}
        again = site("send", "orders", "body of kept", "--delay", "1h", "--id", "kept")
        assert again.out.split()[0] == "duplicate"
        site.send("orders", {"accepted-since": "0s"})
        assert site("reschedule", "orders", "kept", "--delay", "0s").code == 0
        with site.running("--until-empty") as worker:
            assert worker.wait() == 0
    assert sorted(site.delivered()) == ["accepted-since", "dies", "goes", "kept"]


@pytest.mark.long
def test_restore_alone_delivers_what_was_delivered_and_cancelled_since(
    tmp_path: Path, move: Move
) -> None:
    """Hence the order of docs/day-two.md; this is what a snapshot is, and no defect."""
    backup, _ = lose_a_store(tmp_path, move)
    with restored(backup, tmp_path / "restored") as port:
        site = move(port)
        for each in ("goes", "taken-back"):
            assert site("reschedule", "orders", each, "--delay", "0s").code == 0
        with site.running() as worker:
            wait_until(lambda: len(site.delivered()) == 4, "them to be delivered")
            assert worker.end() == 0
    assert sorted(site.delivered()) == ["dies", "goes", "goes", "taken-back"]


def test_restored_store_is_fit_and_outlives_its_server(tmp_path: Path, move: Move) -> None:
    (tmp_path / "lost").mkdir()
    with redis_server(tmp_path / "lost", "--appendonly", "yes", *AT_ONCE) as port:
        move(port).send("orders", {"kept": "1h"})
        back_up(port, tmp_path / "backup.rdb")
    with restored(tmp_path / "backup.rdb", tmp_path / "restored") as port:
        assert move(port)("doctor").code == 0
    with redis_server(tmp_path / "restored", "--appendonly", "yes") as port:
        assert move(port)("get", "orders", "kept").code == 0


def test_server_with_an_append_only_file_from_its_start_ignores_a_snapshot(tmp_path: Path) -> None:
    """The trap that docs/day-two.md warns of."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with redis_server(tmp_path / "a", *AT_ONCE) as port, redis.Redis(port=port) as client:
        client.set("anything", "here")
        back_up(port, tmp_path / "b" / "backup.rdb")
    options = ("--dbfilename", "backup.rdb", "--appendonly", "yes")
    with redis_server(tmp_path / "b", *options) as port, redis.Redis(port=port) as client:
        assert client.dbsize() == 0
