"""How much a worker asks of the store: a backlog, a trickle, nothing at all."""

from collections import Counter
from collections.abc import Callable
from math import ceil

import pytest

from duebridge.envelope import Envelope
from duebridge.store.batching import CALL_ROWS, PROMOTE_ROWS
from duebridge.worker.shard import BACKLOG, GATHER_S
from tests.support.floor import Floor, let_each_call_take_1_ms

BULK = 5000
ROUND_TRIPS_IN_BULK = 0.05
GATHER_MS = ceil(GATHER_S * 1000)  # the floor's clock turns by whole ms
ACK_EVERY_MS = 20


@pytest.fixture
def exporting(build_floor: Callable[..., Floor]) -> Floor:
    return build_floor(exports_gauges=True)


def schedule_every(floor: Floor, step_ms: int, count: int) -> list[str]:
    """Schedule envelopes of which the first is due after a second; returns the ids in order."""
    ids = [f"{number:05d}" for number in range(count)]
    new = [
        Envelope.new(b"", id=name, delay=f"{1000 + place * step_ms}ms")
        for place, name in enumerate(ids)
    ]
    for first in range(0, count, 500):
        floor.stores["r"].schedule(new[first : first + 500], max_delay_ms=10**6)
    return ids


def test_round_trips_in_bulk_are_few(floor: Floor, calls: Counter[str]) -> None:
    schedule_every(floor, 0, BULK)
    floor.warm_up()
    floor.turn(1000)
    assert len(floor.arrived()) == BULK
    assert calls.total() / BULK <= ROUND_TRIPS_IN_BULK, calls


def test_busy_worker_never_polls(
    floor: Floor, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule_every(floor, 0, BULK)
    floor.warm_up()
    floor.turn(999)
    calls.clear()
    floor.advance(1)
    let_each_call_take_1_ms(floor, monkeypatch)
    while len(floor.arrived()) < BULK:
        assert floor.worker.run_once()
    by_claim = BULK / CALL_ROWS + 1  # the first, by promoting a hundred, finds that there are more
    assert calls == {"promote": BULK / PROMOTE_ROWS, "claim": by_claim, "ack": by_claim}


def test_overhear_an_older_poll_asks_nothing(floor: Floor, calls: Counter[str]) -> None:
    view = floor.views["r"]
    older = view.store.next()
    floor.schedule("a")
    floor.advance(1)
    view.update(view.store.next())
    calls.clear()
    view.merge_poll(older)
    view.refresh()
    assert (calls["next"], view.poll.pending) == (0, 1)


@pytest.mark.parametrize("hint", [False, True])
def test_overhear_a_poll_of_the_same_ms_or_after_a_hint_asks_the_store(
    floor: Floor, hint: bool
) -> None:
    view = floor.views["r"]
    view.update(view.store.next())
    floor.advance(1 if hint else 0)
    doubtful = view.store.next()
    floor.schedule("early")
    if hint:
        view.merge_poll(None)
    view.merge_poll(doubtful)
    view.refresh()
    assert view.poll.pending == 1


def test_idle_worker_asks_next_once_a_second_and_nothing_else(
    floor: Floor, calls: Counter[str]
) -> None:
    floor.schedule("later", delay="1h")
    floor.turn()
    calls.clear()
    run_for(floor, 10_000)
    assert calls == {"next": 10 * len(floor.views)}


def test_idle_worker_that_exports_gauges_makes_no_call_more(
    exporting: Floor, calls: Counter[str]
) -> None:
    exporting.schedule("later", delay="1h")
    exporting.turn()
    exporting.turn(1000)
    calls.clear()
    run_for(exporting, 10_000)
    views = len(exporting.views)
    assert calls == {"next": 6 * views, "stats": 2 * views, "watch": 2 * views}


def test_look_waits_for_the_poll_whose_place_it_takes(
    exporting: Floor, calls: Counter[str]
) -> None:
    view = exporting.views["r"]
    view.refresh()
    exporting.advance(1000)
    view.refresh()
    exporting.advance(3600)
    view.update(view.store.next())
    calls.clear()
    exporting.advance(400)
    view.refresh()
    assert calls == {}
    exporting.advance(600)
    view.refresh()
    assert calls == {"stats": 1}


def test_busy_worker_that_exports_gauges_looks_every_few_seconds(
    exporting: Floor, calls: Counter[str]
) -> None:
    schedule_every(exporting, 100, 200)
    del exporting.views["other"]
    exporting.worker = exporting.new_worker()
    exporting.turn(900)
    calls.clear()
    run_for(exporting, 18_000)
    assert calls["claim"] > 100
    assert calls["stats"] == 3


def test_trickle_is_gathered_into_batches(floor: Floor, calls: Counter[str]) -> None:
    step_ms = 2
    ids = schedule_every(floor, step_ms, 600)
    floor.turn()
    calls.clear()
    run_for(floor, 2500)
    assert floor.arrived() == ids
    gathered = 1 + GATHER_MS // step_ms
    assert calls["promote"] == 0
    assert calls["claim"] <= 1.1 * 600 / gathered
    assert calls["ack"] <= 1.1 * 600 * step_ms / ACK_EVERY_MS


def run_for(floor: Floor, ms: int) -> None:
    """Let a worker sleep and work as its loop does, by the clock of the test."""
    until_ms = floor.elapsed_ms + ms
    while True:
        floor.turn()
        sleep_ms = max(1, ceil(floor.worker.sleep_s() * 1000))
        if floor.elapsed_ms + sleep_ms > until_ms:
            break
        floor.advance(sleep_ms)


def test_envelope_due_just_after_a_promotion_waits_for_the_next_one(floor: Floor) -> None:
    floor.schedule("a")
    floor.schedule("b", "c", delay="1001ms")
    floor.turn(1000)
    floor.turn(GATHER_MS - 1)
    assert floor.arrived() == ["a"]
    floor.turn(1)
    assert floor.arrived() == ["a", "b", "c"]


def test_envelope_due_long_after_the_last_promotion_does_not_wait(floor: Floor) -> None:
    floor.schedule("a")
    floor.schedule("b", delay="2s")
    floor.turn(1000)
    floor.turn(1000)
    assert floor.arrived() == ["a", "b"]


def test_backlog_is_promoted_without_a_pause(floor: Floor) -> None:
    ids = [f"id{number}" for number in range(BACKLOG)]
    floor.schedule(*ids)
    floor.schedule("late", delay="1001ms")
    floor.warm_up()
    floor.turn(1000)
    floor.turn(1)
    assert floor.arrived()[-1] == "late"


def test_sleep_while_envelopes_gather_lasts_until_the_next_promotion(floor: Floor) -> None:
    floor.schedule("a")
    floor.schedule("b", delay="1001ms")
    floor.turn(1000)
    floor.advance(1)
    assert 0 < floor.views["r"].sleep_s() <= GATHER_S
