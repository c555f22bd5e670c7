"""A Redis is left for another: emptied behind producers that went first, or handed over whole."""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from duebridge.errors import StoreUnavailable
from duebridge.store.connection import open_connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from tests.acceptance.site import CONFIG, Site
from tests.support.command import wait_until
from tests.support.servers import redis_server

pytestmark = pytest.mark.timeout(120)


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
    return Site(tmp_path, CONFIG.format(url=f"redis://127.0.0.1:{ports[0]}/0"), "old")


@pytest.fixture
def new(tmp_path: Path, ports: tuple[int, int]) -> Site:
    """The same place, with another configuration."""
    return Site(tmp_path, CONFIG.format(url=f"redis://127.0.0.1:{ports[1]}/0"), "new")


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
    with pytest.raises(StoreUnavailable, match="read only replica"):
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
