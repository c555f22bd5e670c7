"""Batches are claimed and settled in calls of at most 250; those of a steady load share an ack.

So no call holds the store up for long; a lone confirm is acked at once, and none is forgotten.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from duebridge.errors import StoreUnavailable
from duebridge.ports.publisher import Delivery, Outcome, Verdict
from duebridge.store.batching import CALL_ROWS
from duebridge.store.delay_store import DelayStore
from duebridge.store.wire.leases import Claim
from duebridge.worker.settlement import ACK_EVERY_S
from duebridge.worker.shard import claim_batch
from tests.support.desk import acks
from tests.support.floor import Floor

ACK_EVERY_MS = int(ACK_EVERY_S * 1000)
ALL_BYTES = 2**22
RECORD_BYTES = 60  # of one here, at most
FAILED = Outcome(Verdict.FAILED, error_class="Nack", error_message="not now")
REJECTED = Outcome(Verdict.REJECTED, error_class="TooLarge", error_message="too large")
AWAY = Outcome(Verdict.UNAVAILABLE, error_class="Refused", error_message="away")


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"duebridge_{name}_total", {"route": "r", **labels}) or 0.0


def make_ready(floor: Floor, count: int, **fields: str) -> list[str]:
    ids = [f"id{number:04d}" for number in range(count)]
    floor.schedule(*ids, **fields)
    floor.advance(1000)
    floor.stores["r"].promote()
    return ids


def claim(floor: Floor, limit: int, limit_bytes: int = ALL_BYTES) -> Claim:
    return claim_batch(floor.views["r"], limit, limit_bytes, alone=False, promote=0)


class Calls:
    """Notes how many ids each call of a store was about; one may find no store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail_at: int = 0) -> None:
        self.rows: list[tuple[str, int]] = []
        self._fail_at = fail_at
        for name in ("claim", "ack", "retry", "bury", "release"):
            self._watch(monkeypatch, name)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        call: Callable[..., object] = getattr(DelayStore, name)

        def watched(store: DelayStore, first: object, *more: object, **options: object) -> object:
            given = first if name in ("claim", "ack") else more[0]
            rows = given if isinstance(given, int) else len(given)  # type: ignore[arg-type]
            self.rows.append((name, rows))  # type: ignore[arg-type]
            if len(self.rows) == self._fail_at:
                raise StoreUnavailable("away")
            return call(store, first, *more, **options)

        monkeypatch.setattr(DelayStore, name, watched)


@pytest.mark.parametrize(
    ("count", "limit", "asked"),
    [
        (600, 500, [250, 250]),
        (600, 600, [250, 250, 100]),
        (300, 600, [250, 250]),
        (250, 600, [250, 250]),
        (100, 600, [250]),
        (600, 100, [100]),
    ],
)
def test_claim_of_a_batch_asks_for_250_a_call_until_one_is_not_full(
    floor: Floor, monkeypatch: pytest.MonkeyPatch, count: int, limit: int, asked: list[int]
) -> None:
    ids = make_ready(floor, count)
    calls = Calls(monkeypatch)
    claimed = claim(floor, limit)
    assert calls.rows == [("claim", rows) for rows in asked]
    assert claimed.ids == ids[:limit]
    assert floor.stores["r"].ack(acks(claimed.token, *claimed.ids)).stale == []
    assert claimed.poll.unack == len(claimed.ids)


def test_claim_of_a_batch_keeps_to_the_bytes_over_all_calls(floor: Floor) -> None:
    make_ready(floor, 600)
    limit_bytes = 300 * RECORD_BYTES
    claimed = claim(floor, 600, limit_bytes)
    assert CALL_ROWS < len(claimed.ids) < 600
    assert claimed.size_bytes <= limit_bytes


def test_claim_of_what_has_expired_ends_with_the_batch(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ready(floor, 700, expires="1500ms")
    floor.advance(1000)
    calls = Calls(monkeypatch)
    claimed = claim(floor, 500)
    assert (claimed.ids, claimed.expired, len(calls.rows)) == ([], 500, 2)


def test_claim_of_a_batch_that_a_lost_store_cuts_short_delivers_what_it_has(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = make_ready(floor, 600)
    with monkeypatch.context() as during:
        Calls(during, fail_at=2)
        claimed = claim(floor, 500)
    assert claimed.ids == ids[:CALL_ROWS]
    assert floor.stores["r"].next().unack == CALL_ROWS


@pytest.mark.parametrize(
    ("outcome", "name"), [(None, "ack"), (FAILED, "retry"), (REJECTED, "bury"), (AWAY, "release")]
)
def test_batch_is_settled_in_calls_of_250(
    floor: Floor, monkeypatch: pytest.MonkeyPatch, outcome: Outcome | None, name: str
) -> None:
    make_ready(floor, 500)
    floor.warm_up()
    floor.publisher.script(lambda _: outcome)
    calls = Calls(monkeypatch)
    floor.worker.run_once()
    assert [each for each in calls.rows if each[0] != "claim"] == [(name, CALL_ROWS)] * 2
    assert floor.stores["r"].next().unack == 0


@pytest.mark.parametrize("fail_at", [2, 3])  # ack, bury
def test_batch_that_the_store_fails_to_settle_counts_each_confirm_once(
    floor: Floor, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    make_ready(floor, 6)
    floor.warm_up()
    floor.publisher.script(lambda each: REJECTED if each.id in ("id0001", "id0003") else None)
    before = counted("delivered")
    with monkeypatch.context() as during:
        Calls(during, fail_at=fail_at)
        floor.worker.run_once()
    assert counted("delivered") == before + 4


@pytest.mark.parametrize(
    ("outcome", "labels", "event"),
    [
        (REJECTED, {"name": "dead", "reason": "attempts_exhausted"}, "buried"),
        (FAILED, {"name": "retried", "cause": "failure"}, "retried"),
    ],
)
def test_settle_of_some_that_are_cancelled_or_lost_counts_the_others(
    floor: Floor,
    monkeypatch: pytest.MonkeyPatch,
    outcome: Outcome,
    labels: dict[str, str],
    event: str,
) -> None:
    make_ready(floor, 6)
    floor.warm_up()
    claims: list[Claim] = []
    plain = DelayStore.claim

    def noted(*given: Any, **how: Any) -> Claim:
        claims.append(plain(*given, **how))
        return claims[-1]

    monkeypatch.setattr(DelayStore, "claim", noted)

    def answer(each: Delivery) -> Outcome:
        if each.id == "id0000":
            assert floor.stores["r"].cancel("id0001") == "in_flight"
            floor.stores["r"].release(claims[0].token, ["id0002"])
        return outcome

    floor.publisher.script(answer)
    before = counted(**labels)
    with capture_logs() as logs:
        floor.worker.run_once()
    assert counted(**labels) == before + 4
    assert [each["count"] for each in logs if each["event"] == event] == [4]


@pytest.mark.parametrize("fails", [False, True])
def test_settle_that_fails_halfway_counts_what_the_store_did(
    floor: Floor, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    make_ready(floor, 6)
    floor.warm_up()
    floor.publisher.script(lambda each: REJECTED if each.id == "id0001" else FAILED)
    before = counted("retried", cause="failure"), counted("dead", reason="attempts_exhausted")
    with monkeypatch.context() as during:
        Calls(during, fail_at=3 if fails else 0)  # claim, retry, bury
        floor.worker.run_once()
    after = counted("retried", cause="failure"), counted("dead", reason="attempts_exhausted")
    assert after == (before[0] + 5, before[1] + (not fails))


def test_letters_that_the_store_fails_to_ack_are_counted_as_confirmed(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ready(floor, 3)
    floor.publisher.script(lambda each: None if each.is_dead_letter else REJECTED)
    before = counted("shunted")
    with monkeypatch.context() as during:
        Calls(during, fail_at=3)  # claim, bury, ack
        floor.turn()
    assert counted("shunted") == before + 3


# Acks


def deliver(floor: Floor, *ids: str) -> None:
    floor.schedule(*ids, delay="1ms")
    floor.worker.wake(floor.views["r"])
    floor.turn(4)
    assert floor.arrived()[-len(ids) :] == list(ids)


def test_ack_of_a_lone_confirm_is_sent_at_once(floor: Floor) -> None:
    deliver(floor, "a")
    assert floor.state("a") is None


def test_acks_soon_after_another_wait_for_the_next_batch(floor: Floor) -> None:
    for name in "abc":
        deliver(floor, name)
    assert [floor.state(name) for name in "abc"] == [None, "unack", "unack"]
    floor.advance(ACK_EVERY_MS - 12)
    deliver(floor, "d")
    assert [floor.state(name) for name in "bcd"] == [None] * 3


def test_acks_that_no_batch_takes_along_are_sent_when_overdue(floor: Floor) -> None:
    for name in "ab":
        deliver(floor, name)
    sleep_ms = floor.worker.sleep_s() * 1000
    assert ACK_EVERY_MS < sleep_ms <= 2 * ACK_EVERY_MS
    floor.turn(2 * ACK_EVERY_MS)
    assert floor.state("b") is None


@pytest.mark.parametrize("end", ["drain", "swap of routes"])
def test_end_of_a_worker_or_route_sends_the_acks_that_wait(floor: Floor, end: str) -> None:
    for name in "ab":
        deliver(floor, name)
    if end == "drain":
        floor.worker.drain(1)
    else:
        floor.worker.swap([])
        floor.turn(2 * ACK_EVERY_MS)
    assert floor.state("b") is None


def test_ack_of_a_hundred_does_not_wait(floor: Floor) -> None:
    deliver(floor, "a")
    many = [f"id{number:03d}" for number in range(100)]
    deliver(floor, *many)
    assert {floor.state(name) for name in many} == {None}


def test_ack_of_the_largest_batch_takes_along_what_waits(build_floor: Callable[..., Floor]) -> None:
    floor = build_floor(worker={"batch": 1000})
    for name in "abc":
        deliver(floor, name)
    many = [f"id{number:04d}" for number in range(1000)]
    floor.schedule(*many, delay="1ms")
    floor.advance(1)
    floor.warm_up()
    floor.stores["r"].promote()  # as another worker does
    floor.worker.wake(floor.views["r"])
    floor.turn()
    assert {floor.state(name) for name in ("b", "c", *many)} == {None}


def test_window_of_bytes_counts_what_bodies_are_once_decoded(
    build_floor: Callable[..., Floor],
) -> None:
    floor = build_floor(worker={"in_flight_bytes": "1MiB"})
    floor.schedule(*(f"id{number:02d}" for number in range(40)), body=bytes(100_000))
    floor.advance(1000)
    floor.publisher.pause()
    with ThreadPoolExecutor(4) as threads:
        worker = floor.new_worker(threads)
        for _ in range(10):
            worker.run_once()
        assert 0 < floor.lane.window.outstanding.envelopes <= 10
        floor.publisher.resume()
