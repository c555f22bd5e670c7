import pytest
from redis.crc import key_slot

from duebridge.errors import ConfigError
from duebridge.store.keys import SHARD_KEYS, Shard, checked_name, routes_key
from tests.store.conftest import Opened
from tests.store.desk import Desk


def test_keys_of_a_shard_share_one_hash_tag() -> None:
    shard = Shard("space", "route", 3)
    assert shard.keys()[0] == "{space:route:3}:pending"
    assert len(shard.keys()) == len(SHARD_KEYS) == len(set(shard.keys()))
    keys = shard.keys()
    assert len({key_slot(key.encode()) for key in keys}) == 1
    assert shard.wake == shard.keys()[-1]


def test_keys_of_two_shards_are_apart() -> None:
    shards = [Shard("n", "r", 0), Shard("n", "r", 1), Shard("n", "q", 0), Shard("m", "r", 0)]
    keys = [key for shard in shards for key in Shard.keys(shard)]
    assert len(keys) == len(set(keys))
    assert routes_key("n") == "{n}:routes"


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "0", "x" * 128])
def test_checked_name_of_a_good_name_returns_it(name: str) -> None:
    assert checked_name("route", name) == name


@pytest.mark.parametrize(
    "name", ["", "-a", ".a", "_a", "a b", "a:b", "{a}", "a}", "a/b", "é", "a\n", "x" * 129]
)
def test_checked_name_of_a_bad_name_is_refused_with_what_came(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checked_name("route", name)
    assert str(refused.value).startswith("route: expected 1 to 128 letters, digits")
    assert repr(name) in str(refused.value)


def test_script_touches_no_key_of_another_shard(open_desk: Opened) -> None:
    desk, other = open_desk(), open_desk()
    other.suspect("a")
    other.dead("b")
    before = other.snapshot()
    live_through_everything(desk)
    assert other.snapshot() == before
    pattern = f"*{desk.shard.namespace}*"
    found = {key.decode() for key in desk.client.scan_iter(match=pattern, count=10_000)}
    assert found <= set(desk.shard.keys())


def live_through_everything(desk: Desk) -> None:
    desk.suspect("a")
    desk.dead("b")
    desk.retry("c", delay_ms=60_000)
    desk.unack("d")
    desk.pending("e")
    desk.store.reschedule("e", "+5", 1000)
    desk.store.cancel("e")
    desk.store.replay(["b"])
    desk.clock.advance(60_000)
    desk.store.reclaim()
    desk.store.forget()
