"""What is made of a configuration: its rendering without a secret, and its JSON Schema."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from duebridge.config.load import load_config_text
from duebridge.config.render import rendered_config
from duebridge.config.schema import config_schema
from duebridge.config.secrets import masked_option, masked_url
from duebridge.config.yaml_tree import read_tree
from duebridge.errors import ConfigError
from tests.unit.config_text import (
    BROKERS,
    EXAMPLE,
    PIECES,
    WHOLE,
    loaded,
    with_values,
    without_comments,
)

CANARY = "Canary7f3c"


def rendered(text: str) -> dict[str, Any]:
    return rendered_config(text, "f.yaml")


def again(text: str) -> str:
    return yaml.safe_dump(rendered(text), allow_unicode=True)


# What is in effect


def test_render_merges_defaults_into_routes() -> None:
    text = f"{WHOLE}    retry: {{initial: 3s}}\ndefaults: {{lease: 1m, retry: {{max: 90s}}}}\n"
    shown = rendered(text)
    assert "defaults" not in shown
    assert shown["routes"]["r"]["lease"] == "1m"
    assert shown["routes"]["r"]["retry"] == {
        "max_attempts": 5,
        "backoff": "exponential",
        "initial": "3s",
        "max": "90s",
        "jitter": "full",
    }


@pytest.mark.parametrize(("own", "shown"), [("", {}), (", jitter: none", {"jitter": "none"})])
def test_render_fixed_retry_has_only_what_applies(own: str, shown: dict[str, str]) -> None:
    retry = rendered(f"{WHOLE}    retry: {{backoff: fixed{own}}}\n")["routes"]["r"]["retry"]
    assert retry == {"max_attempts": 5, "backoff": "fixed", "initial": "1s", **shown}


ADDITIONS = [
    "",
    "    retry: {backoff: fixed, jitter: none}\n",
    "defaults: {retry: {backoff: fixed, initial: 2500ms}, max_body: 1000B}\n",
    "    dead_letter: {broker: billing, exchange: '', routing_key: 'on'}\n",
    "    allow_targets: [{broker: orders, topic: '1e3'}, {broker: orders, topic: '*'}]\n",
    "store: {url: 'redis://a/$$b', namespace: '12', allow_unfit: [version]}\nallow_absent: [x]\n",
]


@pytest.mark.parametrize("text", [*(WHOLE + each for each in ADDITIONS), EXAMPLE.read_text()])
def test_render_loads_again_as_the_same(text: str) -> None:
    once, twice = loaded(text), loaded(again(text))
    assert twice.routes == once.routes
    assert (twice.store, twice.worker) == (once.store, once.worker)
    assert rendered(again(text)) == rendered(text)


def test_render_as_json_loads_again() -> None:
    text = json.dumps(rendered(EXAMPLE.read_text()))
    assert load_config_text(text, "f.json").routes == loaded(EXAMPLE.read_text()).routes


def test_render_wrong_file_names_the_place() -> None:
    with pytest.raises(ConfigError, match=r"^f\.yaml:8:13 routes\.r\.shards: expected at least 1"):
        rendered(WHOLE + "    shards: 0\n")


# References


def test_render_shows_references_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_TOPIC", CANARY)
    monkeypatch.setenv("DB_LEASE", "1m")
    monkeypatch.setenv("DB_NS", CANARY)
    text = WHOLE.replace("topic: t", "topic: 'x-${DB_TOPIC}'")
    text += "defaults: {lease: '${DB_LEASE}'}\nstore: {namespace: '${DB_NS}'}\n"
    shown = rendered(text)
    assert shown["routes"]["r"]["target"]["topic"] == "x-${DB_TOPIC}"
    assert shown["routes"]["r"]["lease"] == "${DB_LEASE}"
    assert shown["store"]["namespace"] == "${DB_NS}"
    assert CANARY not in again(text)


def test_render_reference_of_defaults_is_not_shown_where_overridden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DB_LEASE", "1m")
    text = f"{WHOLE}    lease: 40s\ndefaults: {{lease: '${{DB_LEASE}}'}}\n"
    assert rendered(text)["routes"]["r"]["lease"] == "40s"


# Secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("embedded:.duebridge", "embedded:.duebridge"),
        ("amqp://guest:s3@h:5672/v", "amqp://guest:***@h:5672/v"),
        ("redis://:s3@h", "redis://:***@h"),
        ("redis://s3@h", "redis://***@h"),
        ("redis://u:s@3@h", "redis://u:***@h"),
        ("redis://u:s/3@h", "redis://u:***@h"),
        ("redis://u:s3?@h", "redis://***"),
        ("redis://h?password=s3&db=1", "redis://h?password=***&db=1"),
        ("redis://h?p%61ssword=s3", "redis://h?p%61ssword=***"),
        ("redis://h?password=s3:x@y", "redis://***"),
        ("amqp://u:${PW}@h", "amqp://u:${PW}@h"),
        ("amqp://u:${PW:-s3}@h", "amqp://u:${PW:-***}@h"),
        ("amqp://u:s3${PW}@h", "amqp://u:***@h"),
        ("amqp://${CREDENTIALS:-u:s3}@h", "amqp://${CREDENTIALS:-***}@h"),
        ("${URL:-amqp://u:s3@h}", "${URL:-amqp://u:***@h}"),
        ("${file:/run/url}", "${file:/run/url}"),
        ("redis://${HOST:-localhost}:6379", "redis://${HOST:-localhost}:6379"),
        ("redis://u:$$3@h", "redis://u:***@h"),
    ],
)
def test_mask_url_hides_passwords(url: str, shown: str) -> None:
    assert masked_url(url) == shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("compression.type", "zstd", "zstd"),
        ("linger.ms", 5, 5),
        ("sasl.username", "me", "me"),
        ("ssl.key.location", "/k.pem", "/k.pem"),
        ("sasl.password", "s3", "***"),
        ("sasl.password", 123, "***"),
        ("sasl.password", "${PW}", "${PW}"),
        ("sasl.password", "${PW:-s3}", "${PW:-***}"),
        ("sasl.password", "x${PW}", "***"),
        ("ssl.key.pem", "s3", "***"),
        ("sasl.oauthbearer.client.secret", "s3", "***"),
        ("sasl.jaas.config", "module required password=s3", "***"),
        ("ssl_options", "{'password': 's3'}", "***"),
        ("other", "x password='s3'", "***"),
        ("proxy", "http://u:s3@h", "http://u:***@h"),
    ],
)
def test_mask_option_hides_secrets(name: str, value: object, shown: object) -> None:
    assert masked_option(name, value) == shown


around = st.text("ab:/@?&;=#%${}.- ", max_size=6)
PLACES = [
    "redis://u:{}@h/0",
    "redis://:{}@h",
    "redis://{}@h",
    "redis://h/0?password={}",
    "redis+sentinel://u:p@h/0?db=1&sentinel_password={}",
    "${{URL:-amqp://u:{}@h}}",
    "amqp://u:${{PW:-{}}}@h",
    "amqp://${{WHO:-u:{}}}@h",
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PLACES), around, around)
def test_mask_url_never_shows_a_password(place: str, before: str, after: str) -> None:
    secret = f"{before}{CANARY}{after}"
    if "password=" in place:  # there these end the value, as every reader of a query has it
        secret = secret.translate(dict.fromkeys(map(ord, "&;")))
    if "//{}@" in place:  # before a colon there it would be the user
        secret = secret.replace(":", "")
    if "${" in place:  # a default holds none of these
        secret = secret.translate(dict.fromkeys(map(ord, "${}")))
    assert CANARY not in masked_url(place.format(secret))


SECRETS = f"""\
version: 1
store: {{url: "rediss+sentinel://user:{CANARY}@h/m?sentinel_password={CANARY}&ssl_password={CANARY}"}}
brokers:
  k:
    type: kafka
    bootstrap_servers: ["SASL://u:{CANARY}@h:9092", "${{DB_CANARY}}"]
    options:
      sasl.password: {CANARY}
      ssl.key.password: "${{DB_CANARY}}"
      client.id: "${{DB_CANARY}}"
  r:
    type: rabbitmq
    url: "${{RABBIT:-amqps://u:{CANARY}@h}}"
    options: {{ssl_options: {{password: {CANARY}, cafile: "${{DB_CANARY}}"}}}}
  s:
    type: rabbitmq
    url: "amqp://h"
    options: {{ssl_options: "{{'password': '{CANARY}'}}"}}
routes:
  a:
    target: {{broker: k, topic: "${{DB_CANARY}}"}}
    cold_tier:
      path: s3://bucket/cold
      horizon: 1h
      options:
        region: "${{DB_CANARY}}"
        access_key_id: {CANARY}
        secret_access_key: "${{DB_CANARY}}"
"""


def test_render_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_CANARY", CANARY)
    shown = again(SECRETS)
    assert CANARY not in shown
    assert "***" in shown
    load_config_text(shown, "f.yaml")


def test_render_shows_files_of_nested_options() -> None:
    options = "{ssl_options: {cafile: /ca.pem, keyfile: /key.pem, password: s3}}"
    text = WHOLE.replace("type: rabbitmq,", f"type: rabbitmq, options: {options},")
    assert rendered(text)["brokers"]["billing"]["options"]["ssl_options"] == {
        "cafile": "/ca.pem",
        "keyfile": "/key.pem",
        "password": "***",
    }


def test_render_example_without_comments_is_that_of_the_example() -> None:
    assert rendered(without_comments()) == rendered(EXAMPLE.read_text())


COMMITTED = EXAMPLE.with_name("duebridge.schema.json")
VALIDATOR = Draft7Validator(config_schema())


def errors_of(text: str) -> list[str]:
    return [
        ".".join(map(str, error.absolute_path))
        for error in VALIDATOR.iter_errors(yaml.safe_load(text))
    ]


def test_schema_is_one() -> None:
    Draft7Validator.check_schema(config_schema())


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
    assert silent == {
        ".brokers",
        "KafkaSettings.type",
        "MemorySettings.type",
        "RabbitSettings.type",
    }


def test_route_of_schema_needs_only_a_target() -> None:
    route = config_schema()["$defs"]["Route"]
    assert route["required"] == ["target"]
    assert "name" not in route["properties"]
    assert "default" not in route["properties"]["lease"]


@pytest.mark.parametrize(
    "addition",
    [
        "", "store:\nworker:\ndefaults:\n",
        "store: {url: '${URL}', namespace: '${NS:-n}', durability: '${D:-async}'}\n",
        "store: {durability: {replicated: {replicas: '${N:-2}', timeout: 50ms}}}\n",
        "store: {durability: fsync}\n", "    durability: {replicated: {replicas: 1}}\n",
        "worker: {batch: '${BATCH:-5}', drain: '1${UNIT:-m}', in_flight: '7'}\n",
        "worker: {publish_deadline: 2.5s, in_flight_bytes: '512B'}\n",
        "    retry: {backoff: fixed, jitter: none}\n", "    retry: {max: 1m}\n",
        "    retry:\n    dead_letter:\n", "    dead_letter: {broker: billing, routing_key: q}\n",
        "    allow_targets: [{broker: orders, topic: 'order-*'}]\n", "allow_absent: [old]\n",
    ],
)  # fmt: skip
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
        ("store: {durability: sync}\n", "store.durability"),
        ("store: {durability: {replicated: {}}}\n", "store.durability"),
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
