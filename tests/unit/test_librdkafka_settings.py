"""What a broker's configuration becomes for librdkafka, and what is refused with the reason."""

import sys
from collections.abc import Mapping

import pytest

from duebridge.errors import ConfigError
from duebridge_connectors import kafka
from duebridge_connectors.kafka import librdkafka, open_publisher
from duebridge_connectors.kafka.librdkafka import LibrdkafkaPublisher
from duebridge_connectors.kafka.librdkafka.settings import OWNED, producer_config
from duebridge_connectors.kafka.options import OWNED as OWNED_BY_BOTH
from duebridge_connectors.kafka.settings import producer_config as kafka_python_config

SERVERS = {"type": "kafka", "client": "librdkafka", "bootstrap_servers": ["localhost:9092"]}
TOKEN = ("token", 4_000_000_000.0)


def config(deadline_s: float = 15.0, **options: object) -> Mapping[str, object]:
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    return producer_config({**SERVERS, "options": dotted}, deadline_s)


def test_translate_nothing_gives_the_bridges_own_settings() -> None:
    given = config()
    assert given["acks"] == "all"
    assert given["enable.idempotence"] is False
    assert given["max.in.flight.requests.per.connection"] == 1
    assert given["allow.auto.create.topics"] is False
    assert given["message.send.max.retries"] == 0
    assert given["partitioner"] == "murmur2_random"
    assert given["bootstrap.servers"] == "localhost:9092"


@pytest.mark.parametrize("deadline_s", [3.0, 15.0, 300.0])
def test_translate_a_deadline_lets_the_client_give_up_before_it(deadline_s: float) -> None:
    given = config(deadline_s)
    message, request = given["message.timeout.ms"], given["request.timeout.ms"]
    assert isinstance(message, int)
    assert isinstance(request, int)
    assert request <= message <= (deadline_s - 1) * 1000  # it looks once a second


@pytest.mark.parametrize("deadline_s", [0.1, 3600.0])
def test_translate_an_extreme_deadline_is_still_taken(deadline_s: float) -> None:
    assert config(deadline_s)


def test_translate_options_keeps_kafkas_names() -> None:
    given = config(compression_type="snappy", linger_ms=5, client_id="shop", batch_size="1000")
    assert given["compression.type"] == "snappy"
    assert given["linger.ms"] == "5"
    assert given["client.id"] == "shop"
    assert given["batch.size"] == "1000"


def test_translate_options_of_another_name_gives_librdkafkas() -> None:
    given = config(max_request_size=2_000_000, receive_buffer_bytes=4096)
    assert given["message.max.bytes"] == "2000000"
    assert given["socket.receive.buffer.bytes"] == "4096"


def test_translate_options_of_librdkafka_alone_passes_them_through() -> None:
    given = config(sticky_partitioning_linger_ms=7, socket_keepalive_enable=True)
    assert given["sticky.partitioning.linger.ms"] == "7"
    assert given["socket.keepalive.enable"] == "true"


def test_translate_a_token_provider_gives_its_tokens() -> None:
    secure = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    provider = {"sasl.oauthbearer.token.provider": f"{__name__}:give_token"}
    sys.modules[__name__].give_token = lambda: TOKEN  # type: ignore[attr-defined]
    given = producer_config({**SERVERS, "options": {**secure, **provider}}, 15.0)
    call = given["oauth_cb"]
    assert callable(call)
    assert call("") == TOKEN


def test_questions_by_kafka_python_leave_librdkafkas_own_options_out() -> None:
    options = {"sticky.partitioning.linger.ms": 7, "client.id": "shop"}
    given = kafka_python_config({**SERVERS, "options": options}, 15.0)
    assert given["client_id"] == "shop"


def test_owned_by_both_are_refused_by_both() -> None:
    assert OWNED_BY_BOTH.keys() <= OWNED.keys()


@pytest.mark.parametrize("name", sorted(OWNED))
def test_give_an_option_of_the_bridges_own_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^options\.{name}: .{{15,}}"):
        producer_config({**SERVERS, "options": {name: "x"}}, 15.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"options": {"compresion.type": "zstd"}}, "unknown option, did you mean compression.type"),
        ({"options": {"zzz": 1}}, "^options.zzz: unknown option$"),
        ({"options": {"linger.ms": "soon"}}, "expected a whole number; got another value"),
        ({"options": {"linger.ms": 3000}}, "expected at most 2250"),
        ({"options": {"compression.type": "rar"}}, 'Invalid value "rar"'),
        ({"options": {"security.protocol": "ssl"}}, "expected one of PLAINTEXT, SSL"),
        ({"options": {"queued.min.messages": [1]}}, "expected text, a number, true or false"),
        (
            {"options": {"socket.max.fails": -1}},
            "^options.socket.max.fails: .*outside allowed range",
        ),
        ({"options": {"reconnect.backoff.ms": 5000}}, "^options: .*reconnect.backoff.max.ms"),
        ({"options": ["acks"]}, "options: expected a mapping"),
        ({"option": {}}, "option: unknown key, did you mean options?"),
        ({"bootstrap_servers": []}, "bootstrap_servers: expected a list"),
    ],
)
def test_open_with_wrong_settings_is_refused(settings: Mapping[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_publisher({**SERVERS, **settings}, 15.0)


def test_open_with_a_wrong_password_does_not_show_it() -> None:
    secure = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    with pytest.raises(ConfigError) as raised:
        open_publisher({**SERVERS, "options": {**secure, "sasl.password": 12345}}, 15.0)
    assert "12345" not in str(raised.value)


def test_open_connects_to_nothing_before_the_first_use() -> None:
    publisher = open_publisher({**SERVERS, "bootstrap_servers": ["no-such-host.invalid:1"]}, 15.0)
    assert isinstance(publisher, LibrdkafkaPublisher)
    publisher.close()


def test_open_without_the_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(librdkafka.__name__)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(kafka, "librdkafka")
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigError, match=r"confluent_kafka.*'duebridge\[kafka,librdkafka\]'"):
        open_publisher(SERVERS, 15.0)
