"""`duebridge intake`: what is configured, who runs it, and what is declared."""

import re
import secrets
from pathlib import Path

import pytest

from duebridge.store.server.connection import open_connection
from duebridge.store.workers import IntakeRecord, WorkerRecord, Workers
from tests.support.command import Command
from tests.support.servers import free_port

CONFIG = """\
version: 1
store: {{url: "{url}", namespace: NAMESPACE}}
brokers: {{box: {{type: memory}}}}
routes:
  r: {{target: {{broker: box, topic: t}}, dead_letter: {{broker: box, topic: dead}}}}
intakes:
  in: {{source: {{broker: box, queue: q}}, route: r, declare: {{exchange: delayed}}}}
  other: {{source: {{broker: box, queue: o}}, route: r}}
"""
IDLE = {"process": "", "lag": None, "error": ""}


@pytest.fixture
def namespace() -> str:
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def command(tmp_path: Path, redis_url: str, namespace: str) -> Command:
    return Command(tmp_path, redis_url, CONFIG.replace("NAMESPACE", namespace))


def test_ls_shows_each_intake_though_nobody_runs_it(command: Command) -> None:
    first, other = command("intake", "ls", "--output", "json").json_lines()

    assert first == {
        "intake": "in",
        "broker": "box",
        "source": {"queue": "q"},
        "route": "r",
        "to": "declared",
        "dead_letter": {"broker": "box", "topic": "dead"},
        **IDLE,
    }
    assert (other["intake"], other["to"]) == ("other", "route")


def test_ls_shows_the_process_and_its_lag(command: Command, redis_url: str, namespace: str) -> None:
    connection = open_connection(redis_url)
    workers = Workers(connection, namespace)
    intake = IntakeRecord("in", is_up=False, error="no queue 'q'", lag=42)
    at_ms = workers.now_ms()
    workers.write(WorkerRecord("w", "host-1", 7, "1", at_ms, at_ms, intakes=(intake,)))
    connection.close()

    row = command("intake", "ls").out.splitlines()[1].split()

    assert row[:5] == ["in", "box", "queue=q", "r", "declared"]
    assert row[6:] == ["42", "host-1,", "pid", "7", "no", "queue", "'q'"]


def test_declare_prints_a_line_for_each_thing(command: Command) -> None:
    done = command("intake", "declare", "in")

    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == ["queue q: in memory", "exchange delayed: in memory"]


def test_declare_unknown_intake_names_the_known(command: Command) -> None:
    done = command("intake", "declare", "inn")

    assert done.code == 2
    assert "(in, other); got 'inn', did you mean in?" in done.err


def test_declare_at_a_broker_that_does_not_answer_names_it(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    port = free_port()
    rabbit = f'type: rabbitmq, url: "amqp://localhost:{port}/"'
    config = CONFIG.replace("NAMESPACE", namespace).replace("type: memory", rabbit)
    config = re.sub("topic: (\\w+)", 'exchange: "", routing_key: \\1', config)
    done = Command(tmp_path, redis_url, config)("intake", "declare", "in")

    assert done.code == 4
    assert f"brokers.box: no RabbitMQ answers at localhost:{port}: Connection" in done.err
