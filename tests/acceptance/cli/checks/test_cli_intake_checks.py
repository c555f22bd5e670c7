"""What operators are told of intakes: `doctor`, `config check --connect`, `acl`."""

from contextlib import closing
from pathlib import Path

import pytest
import redis

from duebridge.store.workers import IntakeRecord, WorkerRecord, Workers
from tests.support.command import Command, Done, embedded_command
from tests.support.servers import free_port

INTAKES = """\
intakes:
  retries: {source: {broker: here, queue: later}, route: reminders,
    dead_letter: {broker: here, topic: refused}}
"""
AWAY = """\
version: 1
store: {{url: "{url}"}}
brokers:
  billing: {{type: rabbitmq, url: "amqp://clerk:canary@127.0.0.1:%d/eu"}}
  here: {{type: memory}}
routes:
  r: {{target: {{broker: here, topic: t}}}}
intakes:
  retries:
    source: {{broker: billing, queue: later}}
    route: r
    dead_letter: {{broker: billing, exchange: "", routing_key: refused}}
"""
PLACE = "intakes.retries"


def say(duebridge: Command, *intakes: IntakeRecord, at_ms: int = 60_000, host: str = "a") -> None:
    """Write the record of a worker process; at 60 s it has run for a minute."""
    with closing(duebridge.connection()) as connection:
        record = WorkerRecord(host, host, 42, "1.0", 1, at_ms, intakes=intakes)
        Workers(connection, "duebridge").write(record)


@pytest.fixture
def intakes(duebridge: Command) -> Command:
    with duebridge.file.open("a") as file:
        file.write(INTAKES)
    return duebridge


def finding(done: Done, place: str = PLACE) -> tuple[str, str, str]:
    (found,) = [each for each in done.json_lines() if each["place"] == place]
    return found["severity"], found["found"], found["remedy"]


def test_doctor_of_an_intake_that_nobody_runs_warns(intakes: Command) -> None:
    say(intakes, IntakeRecord("another", is_up=True))
    done = intakes("doctor", "--output", "json")
    severity, found, remedy = finding(done)
    assert (done.code, severity, remedy) == (0, "warning", "start one: duebridge run")
    assert found.startswith("no process runs it")


REFUSED = IntakeRecord("retries", is_up=False, error="403 ACCESS_REFUSED")


@pytest.mark.parametrize(
    ("intake", "code", "severity", "found"),
    [
        (IntakeRecord("retries", True, lag=7), 0, "ok", "processes: 1, waiting at the broker: 7"),
        (IntakeRecord("retries", True), 0, "ok", "processes: 1, waiting at the broker: unknown"),
        (IntakeRecord("retries", True, waiting_ms=9000), 0, "ok", "processes: 1, waiting at the"),
        (REFUSED, 4, "failure", "worker a (pid 42) does not read it: 403 ACCESS_REFUSED"),
        (
            IntakeRecord("retries", True, "no queue refused", waiting_ms=61_500),
            1,
            "failure",
            "worker a (pid 42) has held its batch for 61s: no queue refused",
        ),
        (IntakeRecord("retries", True, lag=100_001), 0, "warning", "100001 messages wait"),
    ],
)
def test_doctor_of_an_intake_that_runs_says_what_its_process_says(
    intakes: Command, intake: IntakeRecord, code: int, severity: str, found: str
) -> None:
    say(intakes, intake)
    done = intakes("doctor", "--output", "json")
    assert (done.code, finding(done)[0]) == (code, severity)
    assert finding(done)[1].startswith(found)


def test_doctor_of_an_intake_of_two_processes_adds_what_waits(
    intakes: Command,
) -> None:
    say(intakes, IntakeRecord("retries", True, lag=60_000), host="a")
    say(intakes, IntakeRecord("retries", True, lag=30_000), host="b")
    severity, found, _ = finding(intakes("doctor", "--output", "json"))
    assert (severity, found) == ("ok", "processes: 2, waiting at the broker: 90000")


def test_doctor_of_an_intake_that_just_started_does_not_blame_it(intakes: Command) -> None:
    say(intakes, REFUSED, at_ms=1500)
    assert finding(intakes("doctor", "--output", "json"))[0] == "ok"


def test_check_that_connects_examines_source_and_dead_letter_target(intakes: Command) -> None:
    done = intakes("config", "check", "--connect", "--output", "json")
    assert done.code == 0, done
    assert finding(done, f"{PLACE}.source")[0] == "ok"
    assert finding(done, f"{PLACE}.dead_letter")[0] == "ok"


def test_check_of_an_intake_whose_broker_is_away_exits_4_and_shows_no_password(
    tmp_path: Path,
) -> None:
    with embedded_command(tmp_path) as on_store:
        duebridge = Command(tmp_path, on_store.url, AWAY % free_port())
        done = duebridge("config", "check", "--connect", "--output", "json")
    assert done.code == 4, done
    assert finding(done, f"{PLACE}.source")[0] == "failure"
    assert "canary" not in done.out + done.err


def test_acl_names_the_sources_and_dead_letter_targets_of_intakes(tmp_path: Path) -> None:
    printed = Command(tmp_path, "redis://h", AWAY % 1)("acl").out.splitlines()
    assert "# Broker billing: to deliver, and to check the targets" in printed
    at = printed.index("# Broker billing: to take in, and to check the sources")
    assert any("later" in line for line in printed[at + 1 :])


def test_rights_of_the_store_are_enough_for_the_position_of_an_intake(
    intakes: Command, tmp_path: Path
) -> None:
    words = intakes("acl", "--acl-file", "--user", "me").out.replace(">PASSWORD", ">pw").split()
    with closing(intakes.connection()) as connection:
        admin: redis.Redis = connection.client
        admin.execute_command("ACL", "SETUSER", *words[1:])
        key = "{duebridge}:intake:retries"
        for command in (("HSET", key, "log", "7"), ("HGET", key, "log")):
            assert admin.execute_command("ACL", "DRYRUN", "me", *command) == b"OK"
        refused = admin.execute_command("ACL", "DRYRUN", "me", "HSET", "{other}:intake:a", "l", "7")
        assert b"no permissions" in refused
