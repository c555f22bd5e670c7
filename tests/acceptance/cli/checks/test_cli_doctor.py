"""`duebridge doctor`: what a beginner gets wrong, each with a remedy and an exit code."""

from contextlib import closing
from typing import Any

import pytest

from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard, routes_key
from duebridge.store.workers import HeldTarget, LaneRecord, WorkerRecord, Workers
from tests.acceptance.site import running
from tests.support.command import Command, Done, kill_due, wait_until

REMINDERS = Shard("duebridge", "reminders", 0)
LONG_AGO_MS = 1_600_000_000_000


def change(duebridge: Command, *replacements: tuple[str, str]) -> None:
    text = duebridge.file.read_text()
    for old, new in replacements:
        text = text.replace(old, new)
    duebridge.file.write_text(text)


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


def test_doctor_all_well_exits_0_a_line_each_and_opens_no_route(
    duebridge: Command, client: Any
) -> None:
    done = duebridge("doctor")
    assert (done.code, done.err) == (0, "")
    *lines, last = done.out.splitlines()
    assert all(line.startswith("ok ") for line in lines)
    assert last == f"failure: 0, warning: 0, ok: {len(lines)}"
    assert "ok       routes.invoices: waiting: 0, dead: 0, workers that listen: 0" in lines
    assert client.exists(routes_key("duebridge")) == 0


def test_doctor_without_a_file_exits_2_and_says_where_to_begin(duebridge: Command) -> None:
    done = duebridge("--config", "none.yaml", "doctor", "--output", "json")
    (finding,) = done.json_lines()
    assert (done.code, finding["found"]) == (2, "there is no such file")
    assert "--config" in finding["remedy"]


def test_doctor_of_a_file_with_two_mistakes_exits_2_with_a_finding_each(duebridge: Command) -> None:
    change(duebridge, ("topic: reminders", "topc: reminders"), ("shards", "shard"))
    done = doctor(duebridge)
    assert done.code == 2
    found = findings(done)
    assert all(place.startswith("duebridge.yaml:") for place in found)
    assert len([each for each in found.values() if "did you mean" in each["found"]]) == 2


def leave_the_configuration(duebridge: Command, client: Any) -> None:
    change(duebridge, ("  reminders:", "  # reminders:"))


def write_a_newer_layout(duebridge: Command, client: Any) -> None:
    client.hset(routes_key("duebridge"), "reminders", "9:1")


def hold(duebridge: Command, client: Any) -> None:
    duebridge("send", "reminders", "due", "--delay", "0s")
    with closing(duebridge.connection()) as connection:
        DelayStore(connection, REMINDERS).promote()
    held = HeldTarget("here", "here:reminders", "312 NO_ROUTE", 1, True, 0, ("reminders",))
    say(duebridge, held=(held,), routes=("reminders",))


def say(duebridge: Command, **fields: Any) -> None:
    """Write the record of a worker that has run for a minute."""
    with closing(duebridge.connection()) as connection:
        record = WorkerRecord("id", "node-7", 42, "1.0", 1, 60_000, **fields)
        Workers(connection, "duebridge").write(record)


def stop_a_lane(duebridge: Command, client: Any) -> None:
    say(duebridge, lanes=(LaneRecord("here", False, "403 ACCESS_REFUSED"),))


def die(duebridge: Command, client: Any) -> None:
    duebridge("send", "reminders", "hello", "--delay", "0s")
    kill_due(duebridge, 1, "TooLarge\nbroke the limit")


def be_late(duebridge: Command, client: Any) -> None:
    say(duebridge, routes=("reminders",))
    client.zadd(REMINDERS.key("pending"), {"old": LONG_AGO_MS})


def wait(duebridge: Command, client: Any) -> None:
    """As it does after it was sent."""


LEFT = "in the store, not in the configuration (envelopes: 1)"


@pytest.mark.parametrize(
    ("happen", "code", "severity", "found", "remedy"),
    [
        (leave_the_configuration, 1, "failure", LEFT, ""),
        (write_a_newer_layout, 3, "failure", "have layout 9", "upgrade duebridge"),
        (hold, 1, "failure", "here:reminders fails: 312 NO_ROUTE", "create or bind it"),
        (die, 0, "warning", "dead envelopes: 1, and", "duebridge dead ls reminders"),
        (be_late, 1, "failure", ", and no worker serves this route", "start one: duebridge run"),
        (wait, 0, "warning", "no worker serves this route", ""),
    ],
)
def test_doctor_of_a_route_says_what_is_wrong_and_what_to_do(
    duebridge: Command, client: Any, happen: Any, code: int, severity: str, found: str, remedy: str
) -> None:
    duebridge("send", "reminders", "hello", "--delay", "1h")
    happen(duebridge, client)
    done = doctor(duebridge)
    (finding,) = [each for each in done.json_lines() if found in each["found"]]
    assert (done.code, finding["severity"]) == (code, severity)
    assert finding["place"] == "routes.reminders"
    assert remedy in finding["remedy"]


def test_doctor_names_the_worker_that_does_not_reach_its_broker(
    duebridge: Command, client: Any
) -> None:
    stop_a_lane(duebridge, client)
    done = doctor(duebridge)
    finding = findings(done)["brokers.here"]
    assert done.code == 4
    expected = "worker node-7 (pid 42) does not reach it: 403 ACCESS_REFUSED"
    assert (finding["severity"], finding["found"]) == ("failure", expected)


def test_doctor_is_content_once_a_worker_runs(duebridge: Command) -> None:
    duebridge("send", "reminders", "hello", "--delay", "1h")
    with running(duebridge) as worker:
        wait_until(
            lambda: "dead: 0, workers that listen: 1" in duebridge("doctor").out,
            "the worker to be seen",
        )
        assert findings(doctor(duebridge)) == {}
        worker.end()


@pytest.mark.parametrize(
    ("happen", "severity", "found", "remedy"),
    [
        (be_late, "warning", "has been due for", "see the workers' logs"),
        (hold, "failure", "it is held", "create or bind it"),
    ],
)
def test_doctor_of_a_route_that_a_worker_serves_blames_what_is_left(
    duebridge: Command, client: Any, happen: Any, severity: str, found: str, remedy: str
) -> None:
    duebridge("send", "reminders", "hello", "--delay", "1h")
    happen(duebridge, client)
    with closing(client.pubsub()) as listener:
        listener.subscribe(REMINDERS.wake)
        assert listener.get_message(timeout=10) is not None
        finding = findings(doctor(duebridge))["routes.reminders"]
    assert finding["severity"] == severity
    assert found in finding["found"]
    assert remedy in finding["remedy"]


def test_doctor_of_a_worker_that_listens_and_does_not_report_asks_whether_it_is_frozen(
    duebridge: Command, client: Any
) -> None:
    duebridge("send", "reminders", "hello", "--delay", "1h")
    with closing(client.pubsub()) as listener:
        listener.subscribe(REMINDERS.wake)
        assert listener.get_message(timeout=10) is not None
        finding = findings(doctor(duebridge))["routes.reminders"]
        say(duebridge, routes=("reminders",))
        assert findings(doctor(duebridge)) == {}
    assert finding["severity"] == "warning"
    assert "listen: 1, and none of them reported in the last 15s" in finding["found"]
    assert "duebridge top" in finding["remedy"]


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
        amqp = 'exchange: "", routing_key'
        change(duebridge, ("type: memory", 'type: rabbitmq, url: "amqp://h"'), ("topic", amqp))
    hidden = duebridge.home / f"without-{package}" / package
    hidden.mkdir(parents=True)
    refusal = f'raise ModuleNotFoundError("No module named {package!r}", name={package!r})'
    (hidden / "__init__.py").write_text(refusal)
    env = {"PYTHONPATH": str(hidden.parent)}
    done = doctor(duebridge, **env)
    finding = findings(done)[place]
    assert (done.code, finding["severity"], finding["remedy"]) == (code, severity, remedy)
    assert package in finding["found"]
    if package == "pika":
        refused = duebridge("run", **env)
        assert (refused.code, refused.out, len(refused.err.splitlines())) == (2, "", 1)
        assert "pip install 'duebridge[rabbitmq]'" in refused.err
