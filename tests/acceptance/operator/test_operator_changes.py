"""What an operator changes: living envelopes due now, moved or cancelled; the dead spread out."""

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from duebridge.admin.operator import DeadSettlement, EnvelopeChange, Operator
from duebridge.admin.timeline import timeline
from duebridge.errors import ConfigError, EnvelopeError, StoreError
from duebridge.store.server.connection import Connection
from tests.acceptance.desk_of_operator import (
    HOUR_MS,
    ORDERS,
    REMINDERS,
    ROUTES,
    OperatorsDesk,
    break_shard,
)
from tests.acceptance.site import memory_config

COLD = {"cold_tier": {"path": "/nowhere", "horizon": "2h"}}


def statuses(answers: list[Any]) -> list[str]:
    return [each.status for each in answers]


def test_deliver_now_makes_what_waits_due_now_and_is_journalled_with_who_asked(
    desk: OperatorsDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.pending(ORDERS, {"p": HOUR_MS})
    desk.retry(ORDERS, "r")
    desk.dead(ORDERS, "d")
    monkeypatch.setattr(desk.connection, "actor", "ann", raising=False)
    answers = desk.operator.deliver_now(ORDERS, ["p", "r", "d", "none", "p"])
    assert [(each.id, each.status) for each in answers] == [
        ("p", "rescheduled"),
        ("r", "rescheduled"),
        ("d", "dead"),
        ("none", "unknown"),
    ]
    (stats,) = desk.operator.stats([ORDERS])
    assert (stats.pending, stats.retry, stats.dead) == (2, 0, 1)
    for answer in answers[:2]:
        shown = desk.operator.show(ORDERS, answer.id)
        assert shown is not None
        assert shown.due_at_ms == answer.due_at_ms <= desk.operator.now_ms() + 1
        event = timeline(desk.operator, ORDERS, answer.id).events[-1]
        assert (event.kind, event.by) == ("rescheduled", "ann")


def test_operator_moves_and_cancels_on_a_route_that_left_the_configuration(
    desk: OperatorsDesk,
) -> None:
    desk.pending(ORDERS, {"a": HOUR_MS, "b": HOUR_MS})
    routes = {REMINDERS: ROUTES[REMINDERS]}
    config = memory_config(routes, store={"namespace": desk.namespace})
    later = Operator(config, desk.connection)
    at = desk.now_ms + 5 * HOUR_MS
    (moved,) = later.reschedule(ORDERS, ["a"], at=at)
    assert (moved.status, moved.due_at_ms) == ("rescheduled", at)
    assert statuses(later.reschedule(ORDERS, ["a"], delay="400d")) == ["too_far"]
    assert statuses(later.cancel(ORDERS, ["a", "b", "c"])) == ["cancelled", "cancelled", "unknown"]
    assert later.show(ORDERS, "a") is None
    with pytest.raises(ConfigError, match="got 'nothing'"):
        later.cancel("nothing", ["a"])
    with pytest.raises(EnvelopeError, match="exactly one"):
        later.reschedule(ORDERS, ["a"])


def test_cancel_on_a_route_with_a_cold_tier_is_noted_against_cold_rows(
    connection: Connection,
) -> None:
    desk = OperatorsDesk(connection, {ORDERS: {**ROUTES[ORDERS], **COLD}})
    assert statuses(desk.operator.cancel(ORDERS, ["in-a-file"])) == ["recorded"]


@pytest.mark.parametrize(("delay_ms", "spread_ms"), [(0, 0), (5_000, 0), (0, HOUR_MS), (7, 60_000)])
def test_replay_spreads_the_dead_evenly_over_the_time(
    desk: OperatorsDesk, delay_ms: int, spread_ms: int
) -> None:
    ids = [f"{n:02d}" for n in range(12)]
    desk.dead(ORDERS, *ids)
    before = desk.operator.now_ms()
    answers = desk.operator.replay(ORDERS, [*ids, "none"], delay_ms, spread_ms)
    after = desk.operator.now_ms() + 1
    assert answers[:-1] == [DeadSettlement(each, ORDERS, "replayed") for each in ids]
    for n, each in enumerate(ids):
        shown = desk.operator.show(ORDERS, each)
        assert shown is not None
        wait = delay_ms + spread_ms * n // 13
        assert before + wait <= shown.due_at_ms <= after + wait


def dead_ids(desk: OperatorsDesk, route: str) -> set[str]:
    """The dead of a route, looked up without scripts."""
    keys = [store.shard.key("dead") for store in desk.stores(route)]
    return {name.decode() for key in keys for name in desk.connection.client.zrange(key, 0, -1)}


@pytest.mark.parametrize(
    ("script", "change", "status"),
    [("cancel", Operator.cancel, "cancelled"), ("reschedule", Operator.deliver_now, "rescheduled")],
)
def test_change_of_many_tells_what_was_done_before_the_store_failed(
    desk: OperatorsDesk, script: str, change: Callable[..., list[EnvelopeChange]], status: str
) -> None:
    desk.pending(ORDERS, dict.fromkeys("abc", HOUR_MS))
    desk.operator.drop(ORDERS, ["none"])  # it knows the route's life from now on
    told: list[EnvelopeChange] = []
    desk.break_after(script, ORDERS)
    with pytest.raises(StoreError):
        change(desk.operator, ORDERS, [*"abc"], tell=told.append)
    assert [(each.id, each.status) for each in told] == [("a", status)]


@pytest.mark.parametrize(
    ("route", "body"),
    [(ORDERS, b"x"), (REMINDERS, secrets.token_bytes(100_000))],
    ids=["of three shards", "of one shard in several calls"],
)
@pytest.mark.parametrize(
    ("script", "settle", "status"),
    [("replay", Operator.replay, "replayed"), ("drop", Operator.drop, "dropped")],
)
def test_settle_of_many_tells_what_was_done_before_the_store_failed(
    desk: OperatorsDesk,
    script: str,
    settle: Callable[..., list[DeadSettlement]],
    status: str,
    route: str,
    body: bytes,
) -> None:
    ids = [f"{number:02}" for number in range(15)]
    desk.dead(route, *ids, body=body)
    told: list[DeadSettlement] = []
    desk.break_after(script, route)
    with pytest.raises(StoreError):
        settle(desk.operator, route, ids, tell=told.append)
    left = dead_ids(desk, route)
    assert 0 < len(left) < len(ids), "else nothing is shown"
    assert {each.id for each in told} == {*ids} - left
    assert {each.status for each in told} == {status}


def test_shunt_tells_what_was_done_before_the_store_failed(connection: Connection) -> None:
    letters = {"dead_letter": {"broker": "memory", "topic": "letters"}}
    desk = OperatorsDesk(connection, {ORDERS: {**ROUTES[ORDERS], **letters}})
    desk.dead(ORDERS, *"abcdef")
    _, _, last = desk.stores(ORDERS)
    break_shard(connection, last, "dead")
    told: list[int] = []
    with pytest.raises(StoreError):
        desk.operator.shunt(ORDERS, told.append)
    assert told == [4]
