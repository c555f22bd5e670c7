"""What a worker does about crashes, poison, damage, and a store that is away."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from duebridge.store.delay_store import DelayStore
from duebridge.store.server import reconnects
from tests.support.floor import Floor

LEASE_MS = 30_000


def crash_with(store: DelayStore) -> None:
    """Claim as a worker does that is killed before it publishes."""
    poll, _ = store.promote()
    assert store.claim(1000, LEASE_MS, alone=poll.suspect > 0).token


def crash(floor: Floor, times: int) -> None:
    """Have that happen so often with what is due, until the leases have run out."""
    floor.advance(1000)
    for _ in range(times):
        crash_with(floor.stores["r"])
        floor.advance(LEASE_MS)
        floor.stores["r"].reclaim()


def test_reclaim_after_a_crash_delivers_with_the_next_attempt(floor: Floor) -> None:
    floor.schedule("a")
    floor.advance(1000)
    crash_with(floor.stores["r"])
    floor.turn(LEASE_MS - 1)
    assert floor.arrived() == []
    floor.turn(1)
    assert floor.headers("a")["x-attempt"] == "2"


def test_reclaim_after_many_crashes_loses_and_buries_nobody(floor: Floor) -> None:
    ids = [f"id{i}" for i in range(200)]
    floor.schedule(*ids)
    crash(floor, times=6)
    floor.turn(1)
    assert sorted(floor.arrived()) == sorted(ids)


def test_claim_of_suspects_takes_one_at_a_time(floor: Floor) -> None:
    store = floor.stores["r"]
    floor.schedule("a", "b", "c")
    crash(floor, times=2)
    floor.publisher.pause()
    with ThreadPoolExecutor(4) as threads:
        worker = floor.new_worker(threads)
        for _ in range(5):
            worker.run_once()
        assert (store.next().suspect, store.next().unack) == (2, 1)
        floor.publisher.resume()


def test_bury_of_a_damaged_record_keeps_it_for_a_person_to_see(floor: Floor) -> None:
    floor.schedule("a", "b")
    floor.damage("a")
    floor.turn(1000)
    assert floor.arrived() == ["b"]
    assert floor.headers("a", "dlt")["x-dlq-reason"] == "poison"
    letter = next(each for each in floor.publisher.delivered if each.id == "a")
    assert letter.body is not None
    assert len(letter.body) == 45


def test_reclaim_after_the_store_was_away_blames_nobody(floor: Floor) -> None:
    floor.schedule("a")
    floor.advance(1000)
    crash_with(floor.stores["r"])
    view = floor.views["r"]
    view.mark_unreachable()
    floor.turn(LEASE_MS)
    assert floor.arrived() == ["a"]
    floor.schedule("b", delay="0ms")
    crash_with(floor.stores["r"])
    floor.advance(LEASE_MS)
    floor.stores["r"].reclaim(counted=view.counts_expiries)
    assert floor.flight("b").expiries == 1


def test_store_that_refuses_to_write_is_not_up_and_blames_nobody_until_it_writes(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnects, "LONGEST_PAUSE_S", 0.0)
    client, view, ups = floor.stores["r"]._connection.client, floor.views["r"], []
    read = view.refresh

    def refresh() -> None:
        read()
        ups.append(view.is_up)

    monkeypatch.setattr(view, "refresh", refresh)
    floor.schedule("a")
    client.config_set("min-replicas-to-write", 1)
    try:
        for _ in range(LEASE_MS // 1000):
            floor.turn(1000)
        assert ups == [True] + (len(ups) - 1) * [False]
        assert len(ups) > 9, "it was not asked"
        assert not view.counts_expiries
    finally:
        client.config_set("min-replicas-to-write", 0)
    floor.turn(1000)
    assert (floor.arrived(), view.is_up) == (["a"], True)


def test_drain_releases_what_no_client_has_yet(floor: Floor) -> None:
    floor.schedule("a", "b")
    floor.schedule("x", route="other")
    floor.advance(1000)
    floor.publisher.pause()
    with ThreadPoolExecutor(1) as threads:
        worker = floor.new_worker(threads)
        worker.run_once()
        assert floor.publisher.deliveries_wait(1, within_s=10)
        threads.submit(floor.publisher.resume)
        worker.drain(0)
        floor.publisher.resume()
        worker.drain(10)
    states = {floor.state("a"), floor.state("x", "other")}
    assert states == {None, "ready"}


def test_sleep_until_the_next_due_instant_but_a_second_at_most(floor: Floor) -> None:
    floor.schedule("a", delay="400ms")
    floor.turn()
    assert 0.4 <= floor.worker.sleep_s() <= 0.41
    floor.schedule("b", delay="1h")
    floor.turn(1000)
    assert 0.9 < floor.worker.sleep_s() <= 1.0
