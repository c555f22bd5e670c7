"""Options that secure a Kafka connection: what is missing, idle or unusable is refused at once."""

import logging
import time
from collections.abc import Mapping

import pytest

from duebridge.errors import ConfigError
from duebridge_connectors.kafka import open_publisher
from duebridge_connectors.kafka.login import PROVIDER, TokenFailed, TokenSource
from duebridge_connectors.kafka.security import check_security

LOGIN = {"sasl.username": "shop", "sasl.password": "canary"}
answers: list[object] = []


def provider() -> object:
    answer = answers.pop(0)
    if isinstance(answer, Exception):
        raise answer
    return answer


NAME = f"{__name__}:provider"


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> TokenSource:
    monkeypatch.setattr("duebridge_connectors.kafka.login.resolve_name", lambda _: provider)
    answers.clear()
    return TokenSource(NAME)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"security.protocol": "SSL"},
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **LOGIN},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", PROVIDER: "a:b"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
    ],
)
def test_check_what_is_complete_says_nothing(options: Mapping[str, object]) -> None:
    check_security(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"security.protocol": "SASL_SSL"}, "options.sasl.mechanism: missing key"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"},
         "options.sasl.username: missing key"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "x"},
         "options.sasl.password: missing key"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
         f"options.{PROVIDER}: missing key"),
        (LOGIN, "options.sasl.username: has no effect without security.protocol: SASL_SSL or"),
        ({"security.protocol": "SSL", **LOGIN},
         "options.sasl.username: has no effect without security.protocol: SASL_SSL or"),
        ({"ssl.ca.location": "/ca.pem"},
         "options.ssl.ca.location: has no effect without security.protocol: SSL or SASL_SSL"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere"},
         "options.ssl.ca.location: /nowhere: No such file"),
        ({"security.protocol": "SSL", "ssl.key.location": __file__},
         "options.ssl.key.location: has no effect without ssl.certificate.location"),
    ],
)  # fmt: skip
def test_check_what_cannot_work_is_refused(options: Mapping[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_security(options)
    assert message in str(refused.value)
    assert "canary" not in str(refused.value)


def test_open_hides_the_traces_that_show_a_password(caplog: pytest.LogCaptureFixture) -> None:
    open_publisher({"bootstrap_servers": "localhost:1"}, 1.0).close()
    for name in ("kafka.net.connection", "kafka.protocol.parser"):
        caplog.set_level(logging.DEBUG, name)
        logging.getLogger(name).debug("SaslAuthenticateRequest(auth_bytes=b'canary')")
        logging.getLogger(name).info("heard")
    assert [record.message for record in caplog.records] == ["heard"] * 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tokens", "expected module:function; got 'tokens'"),
        ("no.such.module:token", "cannot be imported: No module named 'no'"),
        ("time:no_such", "cannot be imported: "),
        ("time:timezone", "expected a function; got time:timezone, which is none"),
    ],
)
def test_name_a_provider_that_is_none_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^options\.{PROVIDER}: ") as refused:
        TokenSource(name)
    assert message in str(refused.value)


def test_ask_for_a_token_twice_asks_the_provider_once(source: TokenSource) -> None:
    answers.append(("first", time.time() + 60))
    assert source.current()[0] == source.current()[0] == "first"


def test_ask_for_a_token_near_its_end_asks_the_provider_again(
    source: TokenSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    answers.extend([("first", now + 100), ("second", now + 200)])
    assert source.current() == ("first", now + 100)
    monkeypatch.setattr("duebridge_connectors.kafka.login.time.time", lambda: now + 81)
    assert source.current() == ("second", now + 200)


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("canary"),
        ("canary", time.time() - 1),
        ("", time.time() + 60),
        (b"canary", time.time() + 60),
        ("canary", "soon"),
        ("canary", float("nan")),
        "canary",
        None,
    ],
    ids=["raises", "expired", "empty", "bytes", "text", "nan", "no pair", "none"],
)
def test_ask_a_provider_that_gives_no_token_fails_without_its_words(
    answer: object, source: TokenSource
) -> None:
    answers.append(answer)
    with pytest.raises(TokenFailed, match=f"{PROVIDER}: {NAME}: ") as failed:
        source.current()
    assert "canary" not in str(failed.value)
    assert failed.value.__cause__ is None


def test_ask_after_a_failure_asks_the_provider_again(source: TokenSource) -> None:
    answers.extend([OSError("away"), ("late", time.time() + 60)])
    with pytest.raises(TokenFailed):
        source.current()
    assert source.current()[0] == "late"
