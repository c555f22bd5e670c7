"""A small whole configuration to break, and what is then said about it."""

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from duebridge.config.load import load_config_text
from duebridge.config.models import Config
from duebridge.errors import ConfigError

BROKERS = """\
version: 1
brokers:
  orders: {type: kafka, bootstrap_servers: ["localhost:9092"]}
  billing: {type: rabbitmq, url: "amqp://localhost"}
"""
ROUTE = """\
routes:
  r:
    target: {broker: orders, topic: t}
"""
WHOLE = BROKERS + ROUTE  # seven lines
NAME = "1 to 128 letters, digits, dots, dashes and underscores, a letter or digit first"
REFUSALS = Path(__file__).with_name("refusals.txt")
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "duebridge.example.yaml"
PIECES = [
    *"\t\n\x00\ud800:-?,[]{}#&*!|>'\"%@`~$ 09",
    *("${DB_CANARY}", "'${DB_CANARY}'", "${DB_UNSET}", "${file:/dev/null}", "$${", "${"),
    *(": ", ": ${DB_CANARY}\n", "\n  ", "\n    ", "---\n", "<<: ", "&a ", "*a", "!!int ", "? "),
    *("null", "true", "1.5", "-1", "9" * 5000, "9" * 5000 + "s", "1e9", "[[[[", '"\\UFFFFFFFF"'),
    *("broker", "topic", "name", "defaults", "kafka", "rabbitmq", "fsync", "30s", "1ms", "retry"),
]


def loaded(text: str) -> Config:
    return load_config_text(text, "f.yaml")


def refusal(text: str) -> list[str]:
    """Return the lines of the refusal; pydantic's error, which holds values, is not in it."""
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return str(caught.value).splitlines()


def refusals() -> list[ParameterSet]:
    """Return each wrong configuration of refusals.txt, and the lines of its refusal."""
    title = ""
    found: list[ParameterSet] = []
    for block in REFUSALS.read_text().split("\n\n")[1:]:
        lines = dict(enumerate(WHOLE.splitlines(), start=1))
        expected: list[str] = []
        for mark, line in (each.split(" ", 1) for each in block.splitlines()):
            if mark == "#":
                title = line
            elif mark == "=>":
                expected.append(f"f.yaml:{line}")
            else:
                lines[int(mark.removesuffix(">"))] = line
        found.append(pytest.param("\n".join(lines.values()) + "\n", expected, id=title))
    return found


def without_comments() -> str:
    lines = [line.split(" #")[0].rstrip() for line in EXAMPLE.read_text().splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith("#")) + "\n"


def mutated(text: str, changes: list[tuple[float, int, str]]) -> str:
    for where, removed, piece in changes:
        at = int(where * len(text))
        text = text[:at] + piece + text[at + removed :]
    return text


def with_values(text: str, changes: list[tuple[float, str]]) -> str:
    parts = text.split(": ")
    for where, piece in changes:
        at = 1 + int(where * (len(parts) - 2))
        value, end, rest = parts[at].partition("\n")
        parts[at] = piece + (value[-1:] if value[-1:] in "}]" else "") + end + rest
    return ": ".join(parts)
