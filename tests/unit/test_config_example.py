"""Whatever is written in the file, it is taken or refused in lines, and no secret is told."""

import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duebridge.config.load import load_config, load_config_text
from duebridge.errors import ConfigError

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "duebridge.example.yaml"


@pytest.fixture(scope="module", autouse=True)
def _environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DB_CANARY", "Canary7f3c; got 'Canary7f3c")
        patch.delenv("DB_UNSET", raising=False)
        yield


def test_load_example_gives_its_routes() -> None:
    config = load_config(EXAMPLE)
    assert list(config.routes) == ["order-timeout", "invoice-dunning"]


PIECES = [
    *"\t\n\x00\ud800:-?,[]{}#&*!|>'\"%@`~$ 09",
    *("${DB_CANARY}", "'${DB_CANARY}'", "${DB_UNSET}", "${file:/dev/null}", "$${", "${"),
    *(": ", ": ${DB_CANARY}\n", "\n  ", "\n    ", "---\n", "<<: ", "&a ", "*a", "!!int ", "? "),
    *("null", "true", "1.5", "-1", "9" * 5000, "9" * 5000 + "s", "1e9", "[[[[", '"\\UFFFFFFFF"'),
    *("broker", "topic", "name", "defaults", "kafka", "rabbitmq", "fsync", "30s", "1ms", "retry"),
]
mutation = st.tuples(
    st.floats(0, 1), st.integers(0, 12), st.sampled_from(PIECES) | st.text(max_size=3)
)
value_of = st.tuples(st.floats(0, 1), st.sampled_from(PIECES))


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


def error_of(text: str) -> ConfigError | None:
    try:
        load_config_text(text, "f.yaml")
    except ConfigError as error:
        return error
    return None


@settings(max_examples=400, deadline=None)
@given(st.lists(value_of, max_size=3), st.lists(mutation, max_size=4))
def test_load_anything_raises_only_config_error_without_a_secret(
    values: list[tuple[float, str]], changes: list[tuple[float, int, str]]
) -> None:
    text = mutated(with_values(without_comments(), values), changes)
    if (error := error_of(text)) is not None:
        assert "Canary7f3c" not in "".join(traceback.format_exception(error))
        assert all(line.startswith("f.yaml:") for line in str(error).split("\n"))
