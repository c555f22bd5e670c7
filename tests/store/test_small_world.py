"""The guarantee in every state that two envelopes and two workers can get into."""

import os
from dataclasses import replace

import pytest

from tests.store import small_world
from tests.store.model import Model
from tests.store.small_world import World, first_world, search

HORIZON = int(os.environ.get("DUEBRIDGE_HORIZON", "2"))
UNKNOWNS = int(os.environ.get("DUEBRIDGE_UNKNOWNS", "1"))


def world() -> World:
    return replace(first_world(), crashes=1, unknowns=UNKNOWNS)


@pytest.mark.long
@pytest.mark.timeout(400)  # a minute where nothing else runs
def test_search_of_every_state_finds_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_world, "HORIZON", HORIZON)
    assert search(world()) > 10_000


def test_search_finds_a_store_that_answers_cancelled_while_a_delivery_is_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cancel(self: Model, id: str) -> str:
        return "cancelled" if self.lives.pop(id, None) else "unknown"

    monkeypatch.setattr(Model, "cancel", cancel)
    with pytest.raises(
        AssertionError, match=r"a arrived after its cancel: the beginning, .*cancel"
    ):
        search(world())


def test_search_finds_a_store_that_lets_a_stale_holder_settle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def settle(self: Model, how: str, token: bytes, ids: list[str], delay: int) -> list[str]:
        for name in ids:
            if name in self.lives:
                self._settle_one(how, name, delay)
        return ids

    monkeypatch.setattr(Model, "settle", settle)
    with pytest.raises(AssertionError, match="settled twice"):
        search(world())


def test_search_finds_a_store_that_promotes_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def promote(self: Model, limit: int) -> int:
        for life in self.lives.values():
            if life.state == "pending":
                life.go("ready", life.score)
        return 0

    monkeypatch.setattr(Model, "promote", promote)
    with pytest.raises(AssertionError, match="b is early"):
        search(world())


def test_search_finds_a_store_that_forgets_what_its_lease_ran_out_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reclaim(self: Model, *, counted: bool) -> int:
        for name in self.within("unack", self.now):
            del self.lives[name]
        return 0

    monkeypatch.setattr(Model, "reclaim", reclaim)
    with pytest.raises(AssertionError, match="is lost"):
        search(world())
