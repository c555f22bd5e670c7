"""When a store is empty for its workers, by the figures of its routes."""

from typing import Any

import pytest

from duebridge.admin.emptying import Emptying, Left, left, to_go
from duebridge.admin.operator import RouteStats
from duebridge.config.models import Config
from duebridge.store.connection import open_connection
from tests.store.servers import free_port

TARGET = {"broker": "here", "topic": "t"}
LETTERS = {"broker": "here", "topic": "dlt"}
CONFIG = Config.model_validate(
    {
        "version": 1,
        "brokers": {"here": {"type": "memory"}},
        "routes": {
            "keeps": {"target": TARGET},
            "shunts": {"target": TARGET, "dead_letter": LETTERS},
        },
    }
)
EMPTY = RouteStats("keeps", 0, 0, 0, 0, 0, 0, 0, 1)


def stats(**changed: Any) -> list[RouteStats]:
    given = {name: getattr(EMPTY, name) for name in EMPTY.__struct_fields__}
    return [RouteStats(**{**given, **changed})]


@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry"])
def test_to_go_counts_what_waits_in_each_state(state: str) -> None:
    assert to_go(CONFIG, stats(**{state: 2})) == 2


def test_to_go_counts_the_dead_that_have_a_target() -> None:
    assert to_go(CONFIG, stats(route="shunts", dead=3)) == 3
    assert list(left(CONFIG, stats(route="shunts", dead=3))) == []


def test_left_are_the_dead_that_have_none() -> None:
    assert to_go(CONFIG, stats(dead=3)) == 0
    assert list(left(CONFIG, stats(dead=3))) == [
        Left("keeps", "dead, and no dead-letter target: 3")
    ]


def test_left_is_what_no_configuration_serves() -> None:
    absent = stats(route="absent", pending=1, dead=1, configured=False)
    assert to_go(CONFIG, absent) == 0
    assert list(left(CONFIG, absent)) == [Left("absent", "not in the configuration: 2")]
    assert list(left(CONFIG, stats(route="absent", configured=False))) == []


def test_left_may_be_cold() -> None:
    assert list(left(CONFIG, stats(cold_left_ms=0))) == [
        Left("keeps", "some may be in its cold tier")
    ]


def test_store_that_does_not_answer_is_not_empty() -> None:
    connection = open_connection(f"redis://127.0.0.1:{free_port()}/0")
    emptying = Emptying(connection)
    assert not emptying.is_over(CONFIG)
    assert not emptying.is_empty
    connection.close()
