"""How a job on Spark tells how far it is: a bar on a terminal, a line for each batch."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from duebridge_connectors.spark.commands import shared
from duebridge_connectors.spark.summary import Summary


@pytest.mark.parametrize("is_terminal", [True, False])
def test_job_shows_a_bar_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    opened: list[dict[str, Any]] = []

    @contextmanager
    def opened_session(name: str, **given: Any) -> Iterator[None]:
        opened.append({"name": name, **given})
        yield None

    session = SimpleNamespace(opened_session=opened_session)
    monkeypatch.setitem(sys.modules, "duebridge_connectors.spark.session", session)
    monkeypatch.setattr(shared, "is_terminal", lambda stream: is_terminal)
    with shared.running("demote", ["spark.master=local[3]"]):
        pass
    more = {"spark.master": "local[3]"}
    assert opened == [
        {"name": "demote", "is_watched": is_terminal, "has_kafka": False, "more": more}
    ]


def test_job_that_goes_on_tells_of_each_batch(capsys: pytest.CaptureFixture[str]) -> None:
    shared.told("1m")["on_batch"](Summary(route="reminders", accepted=1200))
    assert capsys.readouterr().err == "route reminders: 1,200 rows: 1,200 accepted\n"
    assert shared.told(None) == {}
