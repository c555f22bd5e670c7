"""`duebridge dead replay|drop` cut short by Ctrl-C, the store or a reader says what is done."""

import signal
from contextlib import closing

import pytest

from duebridge.admin.dead import ANY_DEAD
from duebridge.admin.operator import Operator
from duebridge.cli.commands.dead.selection import DeadSelection
from duebridge.cli.commands.dead.settling import RateLimiter, SettlePlan, carry_out
from duebridge.cli.output import Output
from duebridge.config.load import load_config
from duebridge.store.routing import RouteStore
from tests.acceptance.cli.envelopes.dead_envelopes import bury, dead, ids_to
from tests.acceptance.desk_of_operator import break_shard
from tests.support.command import Command


def test_replay_interrupted_exits_130_and_says_what_is_done(
    duebridge: Command, operator: Operator
) -> None:
    bury(duebridge, ids_to(50))
    words = ("dead", "replay", "reminders", "--all", "--rate", "1/s", "--delay", "1h")
    process = duebridge.start(*words)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"replayed")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    done = 1 + len(out.splitlines())
    assert process.returncode == 130
    assert err.decode() == f"duebridge: interrupted; before that: {done} replayed\n"
    assert len(dead(operator)) == 50 - done


def test_drop_that_the_store_ends_shows_all_that_is_done(
    duebridge: Command, operator: Operator
) -> None:
    *ids, last = [*ids_to(5), *ids_to(12)[6:], "id-0005"]  # which is alone on its shard
    bury(duebridge, [*ids, last], "invoices")
    with closing(duebridge.connection()) as connection:
        break_shard(connection, RouteStore(connection, "duebridge", "invoices", 3).of(last))
    done = duebridge("dead", "drop", "invoices", *ids, last)
    assert done.code == 3
    assert done.out.splitlines() == [f"dropped    {name}" for name in ids]
    assert "; before that: 11 dropped" in done.err


def test_drop_interrupted_between_two_shards_shows_what_is_done(
    duebridge: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = ids_to(12)
    bury(duebridge, ids, "invoices")
    with closing(duebridge.connection()) as connection:
        operator = Operator(load_config(duebridge.file), connection)
        operator.drop("invoices", ["none"])  # it knows the route's life from now on
        drop = SettlePlan(
            "drop", lambda some, tell: operator.drop("invoices", some.ids, tell), RateLimiter(None)
        )
        calls: list[str] = []

        def interrupt(script: str, _: float) -> None:
            calls.append(script)
            if calls.count("drop") == 2:
                raise KeyboardInterrupt

        connection.observe = interrupt
        selection = DeadSelection(operator, "invoices", ids, ANY_DEAD)
        with pytest.raises(KeyboardInterrupt):
            carry_out(drop, selection, Output.TABLE, is_dry_run=False, is_agreed=True)
    shown = capsys.readouterr()
    assert shown.err == "duebridge: interrupted; before that: 6 dropped\n"
    assert shown.out.splitlines() == [f"dropped    id-00{n:02}" for n in (0, 3, 4, 7, 10, 11)]


def test_drop_whose_reader_left_still_drops_all(duebridge: Command, operator: Operator) -> None:
    bury(duebridge, ids_to(500))
    process = duebridge.start("dead", "drop", "reminders", "--all")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"dropped")
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    process.communicate()
    assert dead(operator) == []
