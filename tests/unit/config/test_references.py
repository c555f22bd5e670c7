"""References are replaced, and what they stand for is never told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from duebridge.config.load import resolved_broker, resolved_store_url
from duebridge.config.secrets import MAX_FILE_BYTES, resolve
from duebridge.config.store_url import url_fault
from duebridge.errors import ConfigError
from duebridge.store.server.connection import open_connection
from tests.unit.config_text import WHOLE, loaded

CANARY = "Canary7f3c; got 'Canary7f3c"
EXPECTED = "expected ${VAR}, ${VAR:-default} or ${file:/path}, and $$ where $ itself is meant"


@pytest.fixture(scope="module", autouse=True)
def _environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DB_CANARY", CANARY)
        patch.setenv("DB_FOUR", "4")
        patch.setenv("DB_EMPTY", "")
        patch.delenv("DB_UNSET", raising=False)
        yield


# One text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("${DB_FOUR}", "4"),
        ("a${DB_FOUR}b${DB_FOUR}", "a4b4"),
        ("${DB_UNSET:-x y}", "x y"),
        ("${DB_EMPTY:-x}", "x"),
        ("${DB_FOUR:-x}", "4"),
        ("${DB_UNSET:-}", ""),
        ("${DB_EMPTY}", ""),
        ("$$", "$"),
        ("$${DB_FOUR}", "${DB_FOUR}"),
    ],
)
def test_resolve_reference_gives_its_value(text: str, value: str) -> None:
    assert resolve(text) == value


def test_resolve_value_with_dollar_is_not_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_OUTER", "${DB_FOUR} $$")
    assert resolve("${DB_OUTER}") == "${DB_FOUR} $$"


@pytest.mark.parametrize(
    "text", ["$", "a$b", "${}", "${A", "${1A}", "${A:x}", "${A:-${B}}", "${file:x}", "$$$", "$A"]
)
def test_resolve_other_use_of_dollar_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(text)
    assert str(caught.value) == EXPECTED


def test_resolve_unset_variable_names_it() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("${DB_CANARY}${DB_UNSET}")
    assert str(caught.value) == "variable DB_UNSET: not set"


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_resolve_file_gives_its_text_without_the_last_newline(tmp_path: Path, end: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(f"a\nb{end}".encode())
    assert resolve(f"${{file:{path}}}") == "a\nb"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe", "expected UTF-8 text"),
        (b"x" * (MAX_FILE_BYTES + 1), f"expected at most {MAX_FILE_BYTES} bytes"),
    ],
)
def test_resolve_unusable_file_names_it(tmp_path: Path, data: bytes | None, expected: str) -> None:
    path = tmp_path / "secret"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        resolve(f"${{file:{path}}}")
    assert str(caught.value) == f"file {path}: {expected}"
    assert caught.value.__context__ is None or caught.value.__suppress_context__


# In the configuration


def test_load_reference_in_number_duration_and_name_is_resolved() -> None:
    text = WHOLE.replace("topic: t", 'topic: "t${DB_FOUR}"')
    route = loaded(text + "    shards: ${DB_FOUR}\n    remember: ${DB_FOUR}h\n").routes["r"]
    assert (route.target.topic, route.shards, route.remember) == ("t4", 4, 14_400_000)


def test_load_connection_settings_keep_their_references() -> None:
    text = WHOLE.replace("amqp://localhost", "amqp://${DB_CANARY}@h")
    config = loaded(text + "store: {url: 'redis://${DB_UNSET}'}\n")
    assert config.store.url == "redis://${DB_UNSET}"
    assert config.brokers["billing"].url == "amqp://${DB_CANARY}@h"
    assert resolved_broker(config, "billing")["url"] == f"amqp://{CANARY}@h"


def test_resolve_without_a_variable_names_it_and_its_place() -> None:
    options = "type: kafka, options: {sasl.password: '${DB_UNSET}'},"
    text = WHOLE.replace("type: kafka,", options) + "store: {url: 'redis://${DB_UNSET}'}\n"
    with pytest.raises(ConfigError, match=r"^store\.url: variable DB_UNSET: not set$"):
        resolved_store_url(loaded(text))
    place = r"^brokers\.orders\.options\.sasl\.password"
    with pytest.raises(ConfigError, match=f"{place}: variable DB_UNSET: not set$"):
        resolved_broker(loaded(text), "orders")


def test_resolve_broker_gives_what_connectors_take() -> None:
    options = "options: {compression.type: zstd, linger.ms: 5, x: true, y: a$$b}"
    text = WHOLE.replace('["localhost:9092"]', f'["k${{DB_FOUR}}:9092", "k2:1"], {options}')
    config = loaded(text.replace("  billing:", "  m: {type: memory, options: {n: x}}\n  billing:"))
    assert {name: resolved_broker(config, name) for name in ("orders", "billing", "m")} == {
        "orders": {
            "type": "kafka",
            "bootstrap_servers": ["k4:9092", "k2:1"],
            "client": "kafka-python",
            "options": {"compression.type": "zstd", "linger.ms": 5, "x": True, "y": "a$b"},
        },
        "billing": {"type": "rabbitmq", "url": "amqp://localhost", "options": {}},
        "m": {"type": "memory", "options": {"n": "x"}},
    }


def test_resolve_unknown_broker_names_the_known() -> None:
    with pytest.raises(ConfigError) as caught:
        resolved_broker(loaded(WHOLE), "x")
    assert str(caught.value) == "brokers: expected one of billing, orders; got 'x'"


@pytest.mark.parametrize(
    "url",
    [
        "redis://:p%40ss%2Fw%23rd@h:1/0", "rediss://u:x@h/0?ssl_ca_certs=/etc/a@b.pem",
        "redis+cluster://h:1", "rediss+cluster://u:p%40@a,b:7001/?ssl_ca_certs=/ca.pem",
        "redis+sentinel://a/m", "redis+sentinel://:p@a,b:1,[::1]:2/m/3?sentinel_password=x%2F",
        "unix:///run/r@dis.sock", "embedded:data", "redis://:6379", "redis://[::1]:7/3/",
        "redis:///2?", "rediss://h?ssl_check_hostname=No&db=3", "unix:///r.sock?db=2",
        "unix://u:p@/r%23.sock",
    ],
)  # fmt: skip
def test_judge_a_url_that_may_be_a_stores_finds_no_fault(url: str) -> None:
    assert url_fault(url) == ""


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://u:canary@h:abc/0", "HOST:PORT/DB; got a port that is no number up to 65535"),
        ("redis://h:99999", "HOST:PORT/DB; got a port that is no number up to 65535"),
        ("redis://h:0", "HOST:PORT/DB; got a port that is no number up to 65535"),
        ("redis://h:1/canary", "HOST:PORT/DB; got a database that is no number"),
        ("redis://h:1/1/2", "HOST:PORT/DB; got a database that is no number"),
        ("redis://h/" + "9" * 5000, "HOST:PORT/DB; got a database that is no number"),
        ("redis://h?db=canary", "expected db as digits; got no number"),
        ("redis://h/1?db=", "expected db as digits; got no number"),
        ("redis://h?canary=1", "expected the options db, ssl_ca_certs"),
        ("redis://h?socket_timeout=canary", "expected the options db, ssl_ca_certs"),
        ("redis+sentinel://h/m?db=1", "expected the options sentinel_username"),
        ("redis://h?canary", "expected options as NAME=VALUE"),
        ("rediss://h?ssl_check_hostname=off", "expected ssl_check_hostname as yes or no"),
        ("redis://h?ssl_ca_certs=/ca.pem", "expected rediss://"),
        ("unix://", "expected unix://[USER:PASSWORD@]/PATH; got no path"),
        ("unix://canary/r.sock", "/PATH; got a host before the path"),
        ("unix://u:p@canary/r.sock?db=1", "/PATH; got a host before the path"),
        ("unix://u:p/canary@/r.sock", "/PATH; got a host before the path"),
        ("unix:///r#canary.sock", "/PATH; got a #, which ends the path: %23"),
        ("embedded:", "expected embedded:DIR; got no directory"),
    ],
)
def test_load_a_url_that_no_store_can_have_is_refused_by_its_fault(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(WHOLE + f"store: {{url: '{url}'}}\n")
    assert "store.url: expected" in str(refused.value)
    assert said in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("url", ["redis://:p@ss/w#rd@h:1/0", "redis://:pa/ss@h", "redis://u:a#b@h"])
def test_open_a_url_with_a_raw_password_says_how_to_encode_it(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_connection(url)
    assert str(refused.value).startswith("store.url: expected user and password percent-encoded")
    assert not any(part in str(refused.value) for part in ("ss/", "w#", "pa/", "a#b"))


def test_load_a_url_by_reference_leaves_it_to_who_resolves_it() -> None:
    assert loaded(WHOLE + "store: {url: '${STORE}'}\n").store.url == "${STORE}"
