"""A Redis is left for another, or lost and its snapshot brought back.

It is emptied behind producers that went first, or handed over whole. After a snapshot what ended
since would come again, unless the journal is heeded.
"""

import json
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from duebridge.errors import StoreUnavailable
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.server.connection import open_connection
from tests.acceptance.site import CONFIG, LONG_LEASE, Site
from tests.support.command import wait_until
from tests.support.servers import AT_ONCE, back_up, redis_server, restored

pytestmark = pytest.mark.timeout(120)


def site_on(port: int, home: Path, name: str = "duebridge") -> Site:
    """Return the site whose store is the server at a port."""
    config = CONFIG.format(url=f"redis://127.0.0.1:{port}/0")
    return Site(home, config.replace("lease: 3s", LONG_LEASE), name)


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """The old Redis and the new one."""
    homes = [tmp_path / "old", tmp_path / "new"]
    for home in homes:
        home.mkdir()
    with (
        redis_server(homes[0], "--appendonly", "yes", "--repl-diskless-sync-delay", "0") as old,
        redis_server(homes[1], "--appendonly", "yes") as new,
    ):
        yield old, new


@pytest.fixture
def old(tmp_path: Path, ports: tuple[int, int]) -> Site:
    return site_on(ports[0], tmp_path, "old")


@pytest.fixture
def new(tmp_path: Path, ports: tuple[int, int]) -> Site:
    """The same place, with another configuration."""
    return site_on(ports[1], tmp_path, "new")


def test_drain_behind_the_producers_delivers_each_once_and_says_when_the_old_one_is_empty(
    old: Site, new: Site
) -> None:
    before = {f"before-{number}": f"{10 * number}ms" for number in range(300)}
    after = {f"after-{number}": f"{5 * number}ms" for number in range(300)}
    with old.running() as old_worker:
        old.send("orders", before)
        old.send("others", {"reject-1": "1s"})
        with new.running() as new_worker:
            new.send("orders", after)
            with old.running("--until-empty") as emptying:
                assert emptying.wait() == 0, emptying.logged()
            assert set(before) < set(old.delivered())
            assert (old_worker.end(), sum(old.states("orders").values())) == (0, 0)
            wait_until(lambda: set(after) < set(new.delivered()), "the new one to go on")
            assert new_worker.end() == 0
    assert Counter(old.delivered()) == Counter([*before, "reject-1", *after])
    assert [each.topic for each in old.records() if each.id == "reject-1"] == ["others-dlt"]


def test_drain_that_is_stopped_before_the_end_exits_1(old: Site) -> None:
    old.send("orders", {"later": "1h"})
    with old.running("--until-empty") as worker:
        assert worker.end(signal.SIGTERM) == 1
    assert old.states("orders")["pending"] == 1


def test_drain_names_what_no_worker_takes_out_and_exits_1(old: Site) -> None:
    """Dead without a dead-letter target, and a route that is not configured any more."""
    whole = old.file.read_text()
    old.file.write_text(f"{whole}  absent: {{target: {{broker: here, topic: absent}}}}\n")
    old.send("absent", {"stays": "1h"})
    old.file.write_text(whole)
    old.send("orders", {"reject-1": "0s", "reject-2": "0s", "goes": "0s"})
    with old.running("--until-empty") as worker:
        assert worker.wait() == 1
        left = [line for line in worker.logged() if line["event"] == "left_in_store"]
    assert [(line["route"], line["why"]) for line in left] == [
        ("orders", "dead, and no dead-letter target: 2"),
        ("absent", "not in the configuration: 1"),
    ]
    assert old.delivered() == ["goes"]


def test_failover_to_another_redis_takes_everything_along(
    old: Site, new: Site, ports: tuple[int, int]
) -> None:
    old.send("orders", {"seen": "0s", "later": "1h", "gone": "1h"})
    with old.running() as worker:
        wait_until(lambda: old.delivered() == ["seen"], "a delivery")
        assert worker.end() == 0
    hand_over(*ports)
    straggler = open_connection(f"redis://127.0.0.1:{ports[0]}/0")
    with pytest.raises(StoreUnavailable, match="is a replica"):
        DelayStore(straggler, Shard("duebridge", "orders", 0)).cancel("gone")
    straggler.close()
    assert new("cancel", "orders", "gone").code == 0
    assert new("reschedule", "orders", "later", "--delay", "0s").code == 0
    again = new("send", "orders", "body of seen", "--delay", "0s", "--id", "seen")
    assert again.out.split()[0] == "duplicate"  # it is remembered
    with new.running("--until-empty") as worker:
        assert worker.wait() == 0
    assert new.delivered() == ["seen", "later"]


def hand_over(old_port: int, new_port: int) -> None:
    """As docs/day-two.md says."""
    with redis.Redis(port=old_port) as old, redis.Redis(port=new_port) as new:
        new.replicaof("127.0.0.1", old_port)
        replica = {"ip": "127.0.0.1", "port": new_port, "state": "online"}
        wait_until(lambda: replica.items() <= old.info().get("slave0", {}).items(), "the copy")
        old.execute_command("FAILOVER", "TO", "127.0.0.1", new_port, "TIMEOUT", 10_000)
        wait_until(lambda: new.info()["role"] == "master", "the new one to take over")


# A snapshot is brought back


def lose_a_store(tmp_path: Path) -> tuple[Path, list[str]]:
    """Return a backup, and the journal of what happened after it, until the store was lost."""
    (tmp_path / "lost").mkdir()
    with redis_server(tmp_path / "lost", "--appendonly", "yes", *AT_ONCE) as port:
        site = site_on(port, tmp_path)
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


def at_ms(line: str) -> int:
    return int(json.loads(line)["at_ms"])


def made_at_s(backup: Path) -> int:
    """Return when a snapshot was made, as redis-check-rdb tells it."""
    told = subprocess.run(["redis-check-rdb", backup], capture_output=True, text=True, check=True)
    (found,) = re.findall(r"ctime = '(\d+)'", told.stdout)
    return int(found)


@pytest.mark.long
def test_restore_that_heeds_the_journal_delivers_each_once_and_nothing_cancelled(
    tmp_path: Path,
) -> None:
    backup, journal = lose_a_store(tmp_path)
    with restored(backup, tmp_path / "restored") as port:
        assert site_on(port, tmp_path)("doctor").code == 0
    with redis_server(tmp_path / "restored", "--appendonly", "yes") as port:  # it outlives that one
        site = site_on(port, tmp_path)
        newest = site("events", "--limit", "1").out.split()[0]
        newest_ms = at_ms(site("events", "--limit", "1", "--output", "json").out)
        since_ms = [at for at in map(at_ms, journal) if at > newest_ms]
        made_ms = made_at_s(backup) * 1000
        assert newest_ms < made_ms + 1000  # nothing was scheduled meanwhile
        assert made_ms - 1000 < min(since_ms)  # the instant of a Cluster
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
