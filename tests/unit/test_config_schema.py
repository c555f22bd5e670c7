"""The JSON Schema takes what the loader takes, and refuses what an editor can know to be wrong."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from duebridge.config.load import load_config_text
from duebridge.config.schema import config_schema
from duebridge.config.yaml_tree import read_tree
from duebridge.errors import ConfigError
from tests.unit.config_text import BROKERS, WHOLE
from tests.unit.test_config_example import EXAMPLE, PIECES, with_values, without_comments

COMMITTED = EXAMPLE.with_name("duebridge.schema.json")
VALIDATOR = Draft7Validator(config_schema())


def errors_of(text: str) -> list[str]:
    return [
        ".".join(map(str, error.absolute_path))
        for error in VALIDATOR.iter_errors(yaml.safe_load(text))
    ]


def test_schema_is_one() -> None:
    Draft7Validator.check_schema(config_schema())


def test_schema_in_docs_is_what_the_command_prints() -> None:
    printed = json.dumps(config_schema(), indent=2) + "\n"
    remedy = "duebridge config schema > docs/duebridge.schema.json"
    assert COMMITTED.read_text() == printed, f"run: {remedy}"


def test_example_names_the_schema_beside_it() -> None:
    first = EXAMPLE.read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema={COMMITTED.name}"


def test_schema_says_something_of_every_key() -> None:
    schema = config_schema()
    blocks = {"": schema, **schema["$defs"]}
    silent = {
        f"{name}.{key}"
        for name, block in blocks.items()
        for key, value in block["properties"].items()
        if "description" not in value and "$ref" not in value
    }
    assert silent == {".brokers", "KafkaBroker.type", "MemoryBroker.type", "RabbitBroker.type"}


def test_route_of_schema_needs_only_a_target() -> None:
    route = config_schema()["$defs"]["Route"]
    assert route["required"] == ["target"]
    assert "name" not in route["properties"]
    assert "default" not in route["properties"]["lease"]


@pytest.mark.parametrize(
    "addition",
    [
        "",
        "store:\nworker:\ndefaults:\n",
        "store: {url: '${URL}', namespace: '${NS:-n}', durability: '${D:-async}'}\n",
        "worker: {batch: '${BATCH:-5}', drain: '1${UNIT:-m}', in_flight: '7'}\n",
        "worker: {publish_deadline: 2.5s, in_flight_bytes: '512B'}\n",
        "    retry: {backoff: fixed, jitter: none}\n",
        "    retry: {max: 1m}\n",
        "    retry:\n    dead_letter:\n",
        "    dead_letter: {broker: billing, routing_key: q}\n",
        "    allow_targets: [{broker: orders, topic: 'order-*'}]\n",
        "allow_absent: [old]\n",
    ],
)
def test_schema_takes_what_the_loader_takes(addition: str) -> None:
    load_config_text(WHOLE + addition, "f.yaml")
    assert errors_of(WHOLE + addition) == []


@pytest.mark.parametrize(
    ("addition", "path"),
    [
        ("zzz: 1\n", ""),
        ("    shard: 2\n", "routes.r"),
        ("    name: s\n", "routes.r"),
        ("    shards: 0\n", "routes.r.shards"),
        ("    shards: many\n", "routes.r.shards"),
        ("    dead_letter: {broker: orders, topic: t, exchange: e}\n", "routes.r.dead_letter"),
        ("    dead_letter: {broker: orders}\n", "routes.r.dead_letter"),
        ("    retry: {backoff: linear}\n", "routes.r.retry.backoff"),
        ("    retry: {backoff: fixed, max: 1m}\n", "routes.r.retry"),
        ("    retry: {backoff: fixed, jitter: full}\n", "routes.r.retry.jitter"),
        ("worker: {batch: 1001}\n", "worker.batch"),
        ("worker: {drain: 20}\n", "worker.drain"),
        ("worker: {drain: soon}\n", "worker.drain"),
        ("worker: {in_flight_bytes: 64MB}\n", "worker.in_flight_bytes"),
        ("store: {durability: fsync}\n", "store.durability"),
        ("store: {namespace: 'a b'}\n", "store.namespace"),
        ("store: {allow_unfit: version}\n", "store.allow_unfit"),
    ],
)
def test_schema_refuses_what_the_loader_refuses(addition: str, path: str) -> None:
    with pytest.raises(ConfigError):
        load_config_text(WHOLE + addition, "f.yaml")
    assert path in errors_of(WHOLE + addition)


@pytest.mark.parametrize(
    "text",
    [
        WHOLE.replace("version: 1", "version: 2"),
        WHOLE.replace("type: kafka", "type: kafak"),
        WHOLE.replace("url:", "ulr:"),
        WHOLE.replace("  r:", "  r r:"),
        WHOLE.replace('["localhost:9092"]', "[]"),
        WHOLE.replace("topic: t", f"topic: {'t' * 250}"),
        BROKERS,
    ],
)
def test_schema_refuses_other_wrong_files(text: str) -> None:
    with pytest.raises(ConfigError):
        load_config_text(text, "f.yaml")
    assert errors_of(text) != []


def plain_values(text: str) -> Any:
    """The tree as an editor sees it: references unresolved, scalars as the loader reads them."""
    tree = read_tree(text, "f.yaml")

    def unresolved(path: tuple[str | int, ...], value: Any) -> Any:
        if isinstance(value, dict):
            return {key: unresolved((*path, key), inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [unresolved((*path, place), inner) for place, inner in enumerate(value)]
        written = tree.places[path].written
        return written if isinstance(written, str) else value

    return unresolved((), tree.value)


VALUES = ["${FOUR}", "'${FOUR}'", "1ms", "24h", "7B", "'4'", "4", "none", "fixed", "null", "true"]
value_of = st.tuples(st.floats(0, 1), st.sampled_from([*VALUES, *PIECES]))


@settings(max_examples=300, deadline=None)
@given(st.lists(value_of, max_size=3))
def test_schema_takes_every_file_that_the_loader_takes(changes: list[tuple[float, str]]) -> None:
    text = with_values(without_comments(), changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOUR", "4")
        try:
            load_config_text(text, "f.yaml")
        except ConfigError:
            return
    assert list(VALIDATOR.iter_errors(plain_values(text))) == []
