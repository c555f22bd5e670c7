"""`duebridge store purge`: what would go, what goes, and what is refused."""

import getpass
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from duebridge.admin import purge
from duebridge.cli.app import app
from duebridge.envelope import Envelope
from duebridge.producer import Producer
from duebridge.store.keys import Shard
from duebridge.store.positions import StorePositions
from duebridge.store.server.fitness import count_listeners
from duebridge.store.workers import WorkerRecord, Workers
from tests.acceptance.site import running
from tests.support.command import Command, kill_due, wait_until


@pytest.fixture
def filled(duebridge: Command) -> Command:
    """The command, with something of each kind in both routes and on all shards."""
    with Producer.from_config(duebridge.file) as producer:
        producer.schedule("reminders", b"a", delay="0s", id="dead")
        kill_due(duebridge, 1, "Error")
        producer.schedule("reminders", b"c", delay="1h", id="gone", remember="1h")
        producer.cancel("reminders", "gone")
        later = [Envelope.new(b"b", delay="1h", id=f"later-{number}") for number in range(20)]
        producer.schedule_many("invoices", later)
    return duebridge


def configure(duebridge: Command, old: str, new: str) -> None:
    whole = duebridge.file.read_text()
    assert old in whole
    duebridge.file.write_text(whole.replace(old, new))


def of_route(client: Any, route: str) -> list[bytes]:
    found: list[bytes] = client.keys(f"{{duebridge:{route}:*")
    return found


def test_purge_without_yes_says_what_would_go_and_changes_nothing(
    filled: Command, client: Any
) -> None:
    before = set(client.keys())
    shown = filled("store", "purge", "reminders", "invoices", "--output", "json")
    assert shown.code == 0
    assert shown.err == "nothing was changed; --yes does it\n"
    plain = {"workers": 0, "configured": True, "has_cold": False, "status": "would_purge"}
    assert shown.json_lines() == [
        {"route": "reminders", "waiting": 0, "dead": 1, "shards": 1, **plain},
        {"route": "invoices", "waiting": 20, "dead": 0, "shards": 3, **plain},
    ]
    assert set(client.keys()) == before


def test_purge_of_a_route_that_left_the_configuration_leaves_nothing_of_it(
    filled: Command, client: Any
) -> None:
    configure(filled, "  invoices:", "  # invoices:")
    done = filled("store", "purge", "invoices", "--yes", "--output", "json")
    assert (done.code, done.err) == (0, "")
    assert (done.json()["configured"], done.json()["status"]) == (False, "purged")
    assert "invoices" not in filled("stats").out
    assert of_route(client, "invoices") == []
    assert of_route(client, "reminders") != []


def test_purge_lets_the_next_first_use_choose_another_number_of_shards(filled: Command) -> None:
    configure(filled, "shards: 3", "shards: 2")
    words = ("send", "invoices", "b", "--delay", "1h", "--id", "later-1")
    assert filled(*words).code == 3
    assert filled("store", "purge", "invoices", "--yes").code == 0
    assert filled(*words, "--output", "json").json()["status"] == "accepted"


def test_purge_of_all_leaves_of_the_namespace_its_log_and_how_far_intakes_came(
    filled: Command, client: Any
) -> None:
    connection = filled.connection()
    StorePositions(connection, "duebridge", "in").write("stream", 7)
    connection.close()
    plain, of_ours = filled.file.read_text(), set(client.keys())
    configure(filled, "store: {", "store: {namespace: other, ")
    filled("send", "reminders", "kept", "--delay", "1h", "--id", "kept")
    filled.file.write_text(plain)
    others = set(client.keys()) - of_ours
    assert others
    done = filled("store", "purge", "--all", "--yes")
    assert done.code == 0
    assert done.out.count("purged") == 2
    left = {b"{duebridge}:purged", b"{duebridge}:intake:in"}
    assert set(client.keys()) == others | left


def test_purge_is_an_event_that_names_who_gave_it(filled: Command) -> None:
    assert filled("store", "purge", "invoices", "--yes").code == 0
    found = filled("events", "--output", "json").json_lines()[-1]
    assert (found["kind"], found["route"], found["envelopes"]) == ("purged", "invoices", 20)
    assert found["by"] == getpass.getuser()
    assert filled("events", "reminders").out.count("purged") == 0
    filled("send", "invoices", "b", "--delay", "1h")
    shown = filled("events", "invoices").out.splitlines()
    assert ["purged" in line for line in shown] == [True, False]
    assert "20 envelopes" in shown[0]


def test_purge_of_what_a_worker_serves_exits_1_and_changes_nothing(
    filled: Command, client: Any
) -> None:
    connection, shard = filled.connection(), Shard("duebridge", "invoices", 0)
    with running(filled) as worker:
        wait_until(lambda: count_listeners(connection, [shard]) == [1], "the worker to listen")
        refused = filled("store", "purge", "invoices", "--yes", "--output", "json")
        assert (refused.code, refused.json()["status"]) == (1, "in_use")
        assert refused.err == "duebridge: nothing was changed: workers serve invoices\n"
        worker.end()
    connection.close()
    assert of_route(client, "invoices") != []
    assert filled("store", "purge", "invoices", "--yes").code == 0


def test_purge_of_what_a_worker_serves_that_does_not_listen_just_now_exits_1(
    filled: Command, client: Any
) -> None:
    """Its connection for hints broke, and is not yet back."""
    connection = filled.connection()
    workers = Workers(connection, "duebridge")
    now_ms = workers.now_ms()
    workers.write(WorkerRecord("id", "host", 1, "1.0", now_ms, now_ms, routes=("invoices",)))
    connection.close()
    refused = filled("store", "purge", "--all", "--yes")
    assert refused.code == 1
    assert refused.err == "duebridge: nothing was changed: workers serve invoices\n"
    assert of_route(client, "invoices") != []


def test_purge_of_a_route_with_a_cold_tier_names_the_files_that_stay(
    filled: Command, client: Any
) -> None:
    meta = Shard("duebridge", "reminders", 0).key("meta")
    client.hset(meta, "hydrated_until", 1_767_225_600_000)
    done = filled("store", "purge", "reminders", "--yes")
    assert done.err == "route reminders: delete the files of its cold tier too\n"


def test_purge_of_what_another_purge_removed_meanwhile_leaves_what_was_accepted_since(
    filled: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = purge.plan_purge

    def overtaken(*asked: Any) -> list[purge.PurgePlan]:
        plans = planned(*asked)
        assert filled("store", "purge", "invoices", "--yes").code == 0
        assert filled("send", "invoices", "b", "--delay", "1h", "--id", "next").code == 0
        return plans

    monkeypatch.chdir(filled.home)
    monkeypatch.setattr(purge, "plan_purge", overtaken)
    shown = CliRunner().invoke(app, ["store", "purge", "invoices", "--yes", "--output", "json"])
    assert (shown.exit_code, json.loads(shown.stdout)["status"]) == (0, "already_purged")
    assert shown.stderr == "route invoices: another purge removed it; what began since then stays\n"
    assert filled("ls", "invoices", "--output", "json").json()["id"] == "next"
