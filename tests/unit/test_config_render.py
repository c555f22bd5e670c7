"""The effective configuration: it loads again, and no secret is in it."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from duebridge.config.load import load_config_text
from duebridge.config.render import rendered_config
from duebridge.config.secrets import masked_option, masked_url
from duebridge.errors import ConfigError
from tests.unit.config_text import WHOLE, loaded
from tests.unit.test_config_example import EXAMPLE, without_comments

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


def test_render_fixed_retry_has_only_what_applies() -> None:
    retry = rendered(WHOLE + "    retry: {backoff: fixed}\n")["routes"]["r"]["retry"]
    assert retry == {"max_attempts": 5, "backoff": "fixed", "initial": "1s"}


def test_render_fixed_retry_without_jitter_keeps_that() -> None:
    retry = rendered(WHOLE + "    retry: {backoff: fixed, jitter: none}\n")["routes"]["r"]["retry"]
    assert retry["jitter"] == "none"


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
store: {{url: "redis://user:{CANARY}@h/0?password={CANARY}"}}
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
  a: {{target: {{broker: k, topic: "${{DB_CANARY}}"}}}}
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
