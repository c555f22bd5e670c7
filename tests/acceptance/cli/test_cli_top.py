"""`duebridge top`: one screen of 80 columns that says what waits and what is the matter."""

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from duebridge.admin.held import HeldStats
from duebridge.admin.histogram import DueBucket
from duebridge.admin.operator import Operator
from duebridge.admin.rates import RouteRates, rates
from duebridge.admin.route_stats import RouteStats
from duebridge.cli.commands.top import MOST_PROBLEMS, OVER_S, View, frame
from duebridge.cli.plots import ASCII, PlotCharacters
from duebridge.config.load import load_config
from duebridge.store.workers import HeldTarget, LaneRecord, WorkerRecord, Workers
from tests.support.command import Command
from tests.support.servers import redis_server

AT = 1_893_456_000_000  # 2030
ERROR = "NO_ROUTE: no queue\x1b[31m is bound " + "and so on " * 20


@pytest.fixture
def troubled(duebridge: Command, client: Any) -> Command:
    """A store with due and scheduled envelopes, a held target and a broker that is away."""
    duebridge("send", "reminders", "x", "--at", "2020-01-31T09:00:00Z")
    for number in range(3):
        duebridge("send", "invoices", "x", "--delay", "30m", "--id", f"{number}")
    held = HeldTarget("here", "here:reminders", ERROR, AT, True, 0, ("reminders",))
    lane = LaneRecord("away", is_open=False, error="connection refused")
    with closing(duebridge.connection()) as connection:
        record = WorkerRecord("id", "node-7", 42, "1.0", AT, AT + 60_000, (lane,), (held,))
        Workers(connection, "duebridge").write(record)
    return duebridge


def test_top_once_shows_routes_problems_and_the_next_hour_in_80_columns(troubled: Command) -> None:
    before = accepted_per_s(troubled)
    shown = troubled("top", "--once")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].endswith("workers: 1")
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:5]}
    assert rows["route"] == [
        "pending",
        "ready",
        "unack",
        "retry",
        "dead",
        "oldest",
        "in/s",
        "out/s",
    ]
    assert rows["reminders"][:5] == ["1", "0", "0", "0", "0"]
    assert rows["invoices"][:6] == ["3", "0", "0", "0", "0", "-"]
    in_per_s = float(rows["invoices"][6])
    assert round(accepted_per_s(troubled), 1) <= in_per_s <= round(before, 1), "in ten seconds"
    assert "held here:reminders" in shown.out
    assert "NO_ROUTE: no queue\\x1b[31m" in shown.out
    assert "broker away: node-7 (pid 42) does not reach it: connection refused" in shown.out
    assert "reminders: some are due, and no worker serves it" in lines
    assert "due already: 1" in shown.out
    assert "█" in lines[-2]
    assert "most 3/min" in lines[-2]


def accepted_per_s(command: Command) -> float:
    """Return the rate of invoices; without new ones it only falls."""
    with closing(command.connection()) as connection:
        [found] = rates(Operator(load_config(command.file), connection), ["invoices"], OVER_S)
    return found.accepted_per_s


def test_top_of_one_route_shows_that_one(troubled: Command) -> None:
    out = troubled("top", "invoices", "--once", PYTHONPATH="", PYTHONIOENCODING="ascii").out
    assert "invoices" in out
    assert "reminders" not in out
    assert out.isascii()


def test_top_says_that_the_store_is_away_below_what_it_saw_last(tmp_path: Path) -> None:
    with redis_server(tmp_path) as port:
        command = Command(tmp_path, f"redis://127.0.0.1:{port}/0")
        with closing(command.connection()) as connection:
            connection.client.config_set("appendonly", "yes")
        assert command("send", "reminders", "x", "--delay", "30m").code == 0
        process = command.start("top", "--every", "100ms")
        assert process.stdout is not None
        lines = iter(process.stdout.readline, b"")
        next(line for line in lines if line.startswith(b"reminders"))
    assert next(line for line in lines if line.startswith(b"no answer of the store: "))
    last = next(line for line in lines if line.startswith(b"reminders"))
    assert last.split()[1] == b"1"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")


def route_stats(name: str, **given: Any) -> RouteStats:
    counts = dict.fromkeys(["pending", "ready", "unack", "retry", "dead"], 10**12)
    whole = {"oldest_due_age_ms": 10**12, "held_since_ms": 0, "shards": 1, **counts, **given}
    return RouteStats(name, **whole)


def test_frame_of_huge_figures_and_many_problems_still_fits() -> None:
    held = tuple(HeldStats(f"t{n}", "é" * 200, AT, 10**12, 3) for n in range(30))
    routes = [route_stats("r" * 99, held=held), route_stats("b", configured=False)]
    rates = [RouteRates(each.route, 10**9, 99.96) for each in routes]
    hour = [DueBucket(n, n + 1, 10**12, n) for n in range(60)]
    for marks in (PlotCharacters(), ASCII):
        lines = frame(View(AT, routes, rates, None, 10**9, hour), marks).plain.splitlines()
        assert max(map(len, lines)) <= 80
        assert len(lines) == 2 + 1 + 2 + 1 + MOST_PROBLEMS + 1 + 4
        assert lines[0].endswith("workers: unknown")
        assert lines[2].split()[:2] == ["route", "pending"]
