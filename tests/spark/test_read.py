"""The batch reader: every row of a store, once, by shard and state."""

from datetime import UTC, datetime
from typing import Any

import pytest

from duebridge.errors import ConfigError
from duebridge.ports.publisher import Reason
from duebridge.store.wire.transitions import Burial, Retry
from duebridge_connectors.spark.source.planning import plan_read
from tests.spark.by_hand import read_by_hand
from tests.spark.world import LATER_MS, World


def numbered(count: int) -> list[str]:
    return [f"i{number}" for number in range(count)]


def stored(world: World, name: str) -> tuple[int, bytes, bytes]:
    """What a way back must keep of an envelope."""
    _, record = world.record("plain", name)
    return record.due_at_ms, record.blob, record.content_hash


def test_read_of_a_split_route_has_every_row_once_by_shard(world: World) -> None:
    world.schedule("split", *numbered(2500))
    frame = world.read(route="split", state="pending", page=100)
    assert frame.rdd.getNumPartitions() == 4
    assert frame.count() == frame.select("id").distinct().count() == 2500
    assert {row.shard for row in frame.select("shard").distinct().collect()} == {0, 1, 2, 3}
    assert "redis://" not in frame._jdf.queryExecution().toString()  # type: ignore[operator]


def test_read_of_an_envelope_has_all_that_it_was_given(world: World) -> None:
    headers = [("n", "text"), ("n", 5), ("m", None), ("t", True)]
    world.schedule("plain", "a", key=b"k", headers=headers, content_type="text/plain",
                   max_attempts=4, remember="1d")  # fmt: skip
    (row,) = world.read(route="plain").collect()
    assert (row.id, row.route, row.shard, row.state) == ("a", "plain", 0, "pending")
    assert row.due_at.replace(tzinfo=UTC) == datetime.fromtimestamp(LATER_MS / 1000, UTC)
    assert row.waits_for == row.due_at
    assert (bytes(row.body), bytes(row.key), row.max_attempts) == (b"body of a", b"k", 4)
    values = [(name, value and bytes(value)) for name, value in row.headers]
    assert values == [("n", b"text"), ("n", b"5"), ("m", None), ("t", b"true")]
    assert row.properties == {"content_type": "text/plain"}
    assert (row.remember_ms, row.attempt, row.expires_at, row.reason) == (86_400_000, 0, None, None)
    assert row.generation > 0


def test_read_of_every_state_names_it(world: World) -> None:
    world.schedule("plain", *numbered(5), at=5)
    world.schedule("split", "other")
    store = world.store("plain")
    store.promote()
    claim = store.claim(3, 30_000)
    retried, dead = claim.ids[:2]
    why: dict[str, Any] = {"is_failure": True, "is_unsure": False, "error": "E\nrefused"}
    store.retry(claim.token, [Retry(id=retried, delay_ms=60_000, **why)])
    store.bury(claim.token, [Burial(id=dead, reason=Reason.TOO_LARGE, **why)])
    rows = {row.id: row for row in world.read().collect()}
    states = sorted(row.state for row in rows.values())
    assert states == ["dead", "pending", "ready", "ready", "retry", "unack"]
    found = rows[retried]
    assert (found.failures, found.error_class, found.error_message) == (1, "E", "refused")
    assert (rows[dead].reason, rows[dead].waits_for) == ("too_large", None)
    ready = read_by_hand(world, route="plain,split", state="ready, retry")
    assert sorted(row["state"] for row in ready) == ["ready", "ready", "retry"]


def test_read_of_a_due_window_ends_before_its_end(world: World) -> None:
    for number in range(10):
        world.schedule("plain", f"w{number}", at=LATER_MS + number * 1000)
    after = datetime.fromtimestamp(LATER_MS / 1000 + 2, UTC).isoformat()
    rows = read_by_hand(world, due_after=after, due_before=LATER_MS + 5000)
    assert {row["id"] for row in rows} == {"w2", "w3", "w4"}


def test_read_packed_goes_back_as_it_was(world: World) -> None:
    world.schedule("plain", *numbered(20), delay="30d", headers={"n": b"v"})
    packed = world.read(route="plain", content="packed")
    kept = packed.drop("route", "shard", "state", "scheduled_at").localCheckpoint()
    before = {name: stored(world, name) for name in world.ids("plain")}
    for name in before:
        assert world.producer().cancel("plain", name) == "cancelled"
    assert world.write(kept, "plain").accepted == 20
    assert {name: stored(world, name) for name in before} == before


def test_read_of_a_damaged_record_says_so_and_goes_on(world: World) -> None:
    world.schedule("plain", "i0", "i1")
    client: Any = world.connection.client
    client.hset(f"{world.store('plain').shard.tag}:envelopes", "i1", b"\x01short")
    rows = {row["id"]: row for row in read_by_hand(world, route="plain")}
    assert rows["i0"]["error_message"] == ""
    assert (rows["i1"]["error_class"], rows["i1"]["body"]) == ("RecordDamaged", None)


def test_read_without_a_configuration_asks_the_store(world: World) -> None:
    world.schedule("split", *numbered(10))
    assert len(read_by_hand(world, store=world.url, namespace=world.namespace)) == 10


WRONG = [
    ({"states": "dead"}, "option states: unknown, did you mean state"),
    ({"state": "gone"}, "option state: expected some of pending"),
    ({"due_before": "2030-01-01T00:00:00"}, "expected an aware datetime"),
    ({"route": "nowhere"}, "expected routes of the store"),
    ({"store": "redis://:hunter2@localhost"}, "expected its password as"),
]


@pytest.mark.parametrize(("options", "expected"), WRONG)
def test_read_of_wrong_options_names_them(
    world: World, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected) as refused:
        plan_read({"config": world.config, **options})
    assert "hunter2" not in str(refused.value)
