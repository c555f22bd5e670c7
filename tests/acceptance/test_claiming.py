"""A batch is claimed and settled in calls of at most 250: no call holds the store up for long."""

from collections.abc import Callable

import pytest

from duebridge.errors import StoreUnavailable
from duebridge.ports.publisher import Outcome, Verdict
from duebridge.store.batching import CALL_ROWS
from duebridge.store.delay_store import DelayStore
from duebridge.store.replies import Claim
from duebridge.worker.shard import claim_batch
from tests.support.floor import Floor

ALL_BYTES = 2**22
RECORD_BYTES = 60  # of one here, at most
FAILED = Outcome(Verdict.FAILED, error_class="Nack", error_message="not now")
REJECTED = Outcome(Verdict.REJECTED, error_class="TooLarge", error_message="too large")
AWAY = Outcome(Verdict.UNAVAILABLE, error_class="Refused", error_message="away")


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
            rows = first if name == "claim" else len(more[0])  # type: ignore[arg-type]
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
    assert floor.stores["r"].ack(claimed.token, claimed.ids).stale == []
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
    floor.publisher.script(lambda _: outcome)
    calls = Calls(monkeypatch)
    floor.worker.run_once()
    assert [each for each in calls.rows if each[0] != "claim"] == [(name, CALL_ROWS)] * 2
    assert floor.stores["r"].next().unack == 0
