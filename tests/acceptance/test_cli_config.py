"""`duebridge config render` and `config schema`, as a person runs them."""

import json
from pathlib import Path

import pytest

from tests.support.command import Command

CANARY = "Canary7f3c"
CONFIG = f"""\
version: 1
store: {{{{url: "{{url}}"}}}}
brokers:
  here:
    type: kafka
    bootstrap_servers: ["localhost:9092"]
    options:
      security.protocol: SASL_PLAINTEXT
      sasl.mechanism: PLAIN
      sasl.username: shop
      sasl.password: {CANARY}
  there: {{{{type: rabbitmq, url: "amqp://user:{CANARY}@${{{{THERE}}}}"}}}}
defaults: {{{{max_delay: 30d}}}}
routes:
  reminders: {{{{target: {{{{broker: here, topic: "${{{{TOPIC}}}}"}}}}}}}}
"""


@pytest.fixture
def duebridge(tmp_path: Path) -> Command:
    return Command(tmp_path, f"redis://:{CANARY}@localhost:6379/0", CONFIG)


def test_render_prints_what_is_in_effect_without_secrets(duebridge: Command) -> None:
    done = duebridge("config", "render", TOPIC=CANARY)
    assert (done.code, done.err) == (0, "")
    assert CANARY not in done.out
    assert "url: redis://:***@localhost:6379/0\n" in done.out
    assert "url: amqp://user:***@${THERE}\n" in done.out
    assert "max_delay: 30d\n" in done.out
    assert "topic: ${TOPIC}\n" in done.out


def test_render_without_a_variable_exits_2_and_names_it(duebridge: Command) -> None:
    done = duebridge("config", "render")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "duebridge.yaml:15:45 routes.reminders.target.topic: variable TOPIC: not set\n"
    )


def test_schema_prints_the_committed_one(duebridge: Command) -> None:
    committed = Path(__file__).parents[2] / "docs" / "duebridge.schema.json"
    done = duebridge("config", "schema")
    assert (done.code, done.err, done.out) == (0, "", committed.read_text())
    assert json.loads(done.out)["title"] == "duebridge.yaml"


def test_file_of_the_environment_is_taken_unless_the_command_names_one(duebridge: Command) -> None:
    wrong = duebridge.home / "wrong.yaml"
    named = {"DUEBRIDGE_CONFIG": str(wrong), "TOPIC": "t"}
    assert str(wrong) in duebridge("config", "render", **named).err
    file = str(duebridge.file)
    assert duebridge("--config", file, "config", "render", **named).code == 0
    assert duebridge("config", "render", file, **named).code == 0
