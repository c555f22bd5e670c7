"""`duebridge doctor`: what a beginner gets wrong, each with a remedy and an exit code."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duebridge.store.keys import Shard, routes_key
from tests.support.command import Command, Done, embedded_command, kill_due, wait_until

REMINDERS = Shard("duebridge", "reminders", 0)


@pytest.fixture
def duebridge(tmp_path: Path) -> Iterator[Command]:
    with embedded_command(tmp_path) as command:
        yield command


def findings(done: Done) -> dict[str, dict[str, str]]:
    """Return what is not ok, by place; one finding a place."""
    found = [each for each in done.json_lines() if each["severity"] != "ok"]
    by_place = {each["place"]: each for each in found}
    assert len(by_place) == len(found)
    return by_place


def doctor(duebridge: Command, **env: str) -> Done:
    done = duebridge("doctor", "--output", "json", **env)
    assert done.err == ""
    return done


def test_doctor_all_well_exits_0_a_line_each(duebridge: Command) -> None:
    done = duebridge("doctor")
    assert (done.code, done.err) == (0, "")
    *lines, last = done.out.splitlines()
    assert all(line.startswith("ok ") for line in lines)
    assert last == f"failure: 0, warning: 0, ok: {len(lines)}"
    assert "ok       routes.invoices: waiting: 0, dead: 0, workers that listen: 0" in lines


def test_doctor_opens_no_route(duebridge: Command) -> None:
    assert doctor(duebridge).code == 0
    connection = duebridge.connection()
    assert connection.client.exists(routes_key("duebridge")) == 0
    connection.close()


def test_doctor_without_a_file_exits_2_and_says_where_to_begin(duebridge: Command) -> None:
    done = duebridge("--config", "none.yaml", "doctor", "--output", "json")
    (finding,) = done.json_lines()
    assert (done.code, finding["found"]) == (2, "there is no such file")
    assert "--config" in finding["remedy"]


def test_doctor_of_a_file_with_two_mistakes_exits_2_with_a_finding_each(duebridge: Command) -> None:
    text = duebridge.file.read_text().replace("topic: reminders", "topc: reminders")
    duebridge.file.write_text(text.replace("shards", "shard"))
    done = doctor(duebridge)
    assert done.code == 2
    found = findings(done)
    assert all(place.startswith("duebridge.yaml:") for place in found)
    assert len([each for each in found.values() if "did you mean" in each["found"]]) == 2


def test_doctor_route_that_left_the_configuration_fails(duebridge: Command) -> None:
    duebridge("send", "invoices", "hello", "--delay", "1h")
    text = duebridge.file.read_text()
    duebridge.file.write_text(text[: text.index("  invoices")])
    done = doctor(duebridge)
    assert done.code == 1
    finding = findings(done)["routes.invoices"]
    assert finding["severity"] == "failure"
    assert finding["found"] == "in the store, not in the configuration (envelopes: 1)"


def test_doctor_newer_record_layout_exits_3(duebridge: Command) -> None:
    connection = duebridge.connection()
    connection.client.hset(routes_key("duebridge"), "reminders", "9:1")
    connection.close()
    done = doctor(duebridge)
    assert done.code == 3
    finding = findings(done)["routes.reminders"]
    assert "have layout 9" in finding["found"]
    assert finding["remedy"] == "upgrade duebridge"


def test_doctor_held_route_fails(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", "--delay", "1h")
    connection = duebridge.connection()
    connection.client.hset(REMINDERS.keys()[9], "held_since", 1_767_225_600_000)
    connection.close()
    done = doctor(duebridge)
    assert done.code == 1
    assert "it is held" in done.out


def test_doctor_dead_without_a_dead_letter_target_warns(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", "--delay", "0s")
    kill_due(duebridge, 1, "TooLarge\nbroke the limit")
    done = doctor(duebridge)
    assert done.code == 0
    finding = findings(done)["routes.reminders"]
    assert finding["severity"] == "warning"
    assert "dead envelopes: 1, and" in finding["found"]
    assert "duebridge dead ls reminders" in finding["remedy"]


def test_doctor_due_long_ago_and_no_worker_fails(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", "--at", "2020-01-31T09:00:00Z")
    connection = duebridge.connection()
    connection.client.zadd(REMINDERS.keys()[0], {"old": 1_600_000_000_000})
    connection.close()
    done = doctor(duebridge)
    assert done.code == 1
    finding = findings(done)["routes.reminders"]
    assert "has been due for" in finding["found"]
    assert finding["found"].endswith("and no worker listens")
    assert finding["remedy"] == "start one: duebridge run"


def test_doctor_waiting_and_no_worker_warns_until_one_runs(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", "--delay", "1h")
    done = doctor(duebridge)
    assert done.code == 0
    assert "no worker listens" in findings(done)["routes.reminders"]["found"]
    with duebridge.start("run") as worker:
        wait_until(lambda: "listen: 1" in duebridge("doctor").out, "the worker to be seen")
        assert findings(doctor(duebridge)) == {}
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)


def test_doctor_late_although_a_worker_listens_warns(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", "--delay", "1h")
    connection = duebridge.connection()
    connection.client.zadd(REMINDERS.keys()[0], {"old": 1_600_000_000_000})
    listener: Any = connection.client.pubsub()
    listener.subscribe(REMINDERS.wake)
    assert listener.get_message(timeout=10) is not None
    finding = findings(doctor(duebridge))["routes.reminders"]
    listener.close()
    connection.close()
    assert finding["severity"] == "warning"
    assert "see the workers' logs" in finding["remedy"]


@pytest.mark.parametrize(
    ("package", "place", "severity", "code", "remedy"),
    [
        ("pika", "brokers.here", "failure", 2, "type: pip install 'duebridge[rabbitmq]'"),
        ("hiredis", "store", "warning", 0, "type: pip install hiredis"),
    ],
)
def test_doctor_missing_package_is_named_with_the_line_to_type(
    duebridge: Command, package: str, place: str, severity: str, code: int, remedy: str
) -> None:
    if package == "pika":
        text = duebridge.file.read_text().replace("type: memory", 'type: rabbitmq, url: "amqp://h"')
        text = text.replace("topic: reminders", 'exchange: "", routing_key: a')
        duebridge.file.write_text(text.replace("topic: invoices", 'exchange: "", routing_key: b'))
    hidden = duebridge.home / "hidden"
    (hidden / package).mkdir(parents=True)
    refusal = f'raise ModuleNotFoundError("No module named {package!r}", name={package!r})'
    (hidden / package / "__init__.py").write_text(refusal)
    done = doctor(duebridge, PYTHONPATH=str(hidden))
    finding = findings(done)[place]
    assert (done.code, finding["severity"], finding["remedy"]) == (code, severity, remedy)
    assert package in finding["found"]
