"""`duebridge store purge`: what would go, what goes, and what is refused."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from duebridge.envelope import Envelope
from duebridge.producer import Producer
from duebridge.store.connection import Connection
from duebridge.store.fitness import count_listeners
from duebridge.store.keys import Shard
from tests.support.command import Command, kill_due, wait_until


def fill(duebridge: Command) -> None:
    """Have something of each kind in both routes, and on each of the three shards of one."""
    with Producer.from_config(duebridge.file) as producer:
        producer.schedule("reminders", b"a", delay="0s", id="dead")
        kill_due(duebridge, 1, "Error")
        producer.schedule("reminders", b"c", delay="1h", id="gone", remember="1h")
        producer.cancel("reminders", "gone")
        later = [Envelope.new(b"b", delay="1h", id=f"later-{number}") for number in range(20)]
        producer.schedule_many("invoices", later)


@contextmanager
def configured(duebridge: Command, old: str, new: str) -> Iterator[None]:
    """Have something else in the configuration for a while."""
    whole = duebridge.file.read_text()
    assert old in whole
    duebridge.file.write_text(whole.replace(old, new))
    try:
        yield
    finally:
        duebridge.file.write_text(whole)


def keys(duebridge: Command) -> set[str]:
    connection = duebridge.connection()
    found = {key.decode() for key in connection.client.scan_iter(count=1000)}
    connection.close()
    return found


def of_route(found: set[str], route: str) -> set[str]:
    return {key for key in found if key.startswith(f"{{duebridge:{route}:")}


def test_purge_without_yes_says_what_would_go_and_changes_nothing(duebridge: Command) -> None:
    fill(duebridge)
    before = keys(duebridge)
    shown = duebridge("store", "purge", "reminders", "invoices", "--output", "json")
    assert shown.code == 0
    assert shown.err == "nothing was changed; --yes does it\n"
    plain = {"workers": 0, "configured": True, "has_cold": False, "status": "would_purge"}
    assert shown.json_lines() == [
        {"route": "reminders", "waiting": 0, "dead": 1, "shards": 1, **plain},
        {"route": "invoices", "waiting": 20, "dead": 0, "shards": 3, **plain},
    ]
    assert keys(duebridge) == before


def test_purge_of_a_route_that_left_the_configuration_leaves_nothing_of_it(
    duebridge: Command,
) -> None:
    fill(duebridge)
    with configured(duebridge, "  invoices:", "  # invoices:"):
        done = duebridge("store", "purge", "invoices", "--yes", "--output", "json")
        assert (done.code, done.err) == (0, "")
        assert (done.json()["configured"], done.json()["status"]) == (False, "purged")
        assert "invoices" not in duebridge("stats").out
    assert of_route(keys(duebridge), "invoices") == set()
    assert of_route(keys(duebridge), "reminders") != set()


def test_purge_lets_the_next_first_use_choose_another_number_of_shards(duebridge: Command) -> None:
    fill(duebridge)
    with configured(duebridge, "shards: 3", "shards: 2"):
        words = ("send", "invoices", "b", "--delay", "1h", "--id", "later-1")
        assert duebridge(*words).code == 3
        assert duebridge("store", "purge", "invoices", "--yes").code == 0
        assert duebridge(*words, "--output", "json").json()["status"] == "accepted"


def test_purge_of_all_leaves_no_key_of_the_namespace_and_every_other(duebridge: Command) -> None:
    with configured(duebridge, "store: {", "store: {namespace: other, "):
        duebridge("send", "reminders", "kept", "--delay", "1h", "--id", "kept")
    others = keys(duebridge)
    assert others
    fill(duebridge)
    done = duebridge("store", "purge", "--all", "--yes")
    assert done.code == 0
    assert done.out.count("purged") == 2
    assert keys(duebridge) == others


def test_purge_of_what_a_worker_serves_exits_1_and_changes_nothing(duebridge: Command) -> None:
    fill(duebridge)
    with duebridge.start("run") as worker:
        connection = duebridge.connection()
        try:
            wait_until(lambda: is_served(connection, "invoices"), "the worker to listen")
            refused = duebridge("store", "purge", "invoices", "--yes", "--output", "json")
            assert (refused.code, refused.json()["status"]) == (1, "in_use")
            assert refused.err == "duebridge: nothing was changed: workers serve invoices\n"
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)
        finally:
            worker.kill()
            connection.close()
    assert of_route(keys(duebridge), "invoices") != set()
    assert duebridge("store", "purge", "invoices", "--yes").code == 0


def is_served(connection: Connection, route: str) -> bool:
    return count_listeners(connection, [Shard("duebridge", route, 0)]) == [1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "expected names of routes, or --all; got neither"),
        (("reminders", "--all"), "expected names of routes, or --all; got both"),
        (("no-such", "--yes"), "route: expected one of the configuration or the store"),
    ],
)
def test_purge_of_nothing_that_is_clear_exits_2(
    duebridge: Command, words: tuple[str, ...], expected: str
) -> None:
    refused = duebridge("store", "purge", *words)
    assert (refused.code, refused.out) == (2, "")
    assert expected in refused.err


def test_purge_of_a_route_with_a_cold_tier_names_the_files_that_stay(duebridge: Command) -> None:
    duebridge("send", "reminders", "c", "--delay", "1h", "--id", "here")
    connection = duebridge.connection()
    meta = Shard("duebridge", "reminders", 0).keys()[9]
    connection.client.hset(meta, "hydrated_until", 1_767_225_600_000)
    connection.close()
    done = duebridge("store", "purge", "reminders", "--yes")
    assert done.err == "route reminders: delete the files of its cold tier too\n"
