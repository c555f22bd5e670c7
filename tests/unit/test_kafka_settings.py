"""What a broker's configuration becomes, and what is refused with the reason."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme

from duebridge.errors import ConfigError
from duebridge_connectors.kafka import open_publisher
from duebridge_connectors.kafka.options import OPTIONS, OWNED
from duebridge_connectors.kafka.settings import producer_config

from kafka import KafkaProducer  # isort: skip

SECRET = "open sesame"  # noqa: S105 - nobody's
SERVERS = {"bootstrap_servers": ["localhost:9092"]}


def config(deadline_s: float = 15.0, **options: object) -> Mapping[str, object]:
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    return producer_config({"type": "kafka", **SERVERS, "options": dotted}, deadline_s)


def test_translate_nothing_gives_the_bridges_own_settings() -> None:
    given = config()
    assert given["acks"] == "all"
    assert given["enable_idempotence"] is False
    assert given["max_in_flight_requests_per_connection"] == 1
    assert given["allow_auto_create_topics"] is False
    assert given["retries"] == 0
    assert given["bootstrap_servers"] == ["localhost:9092"]


@pytest.mark.parametrize("deadline_s", [1.0, 15.0, 300.0])
def test_translate_a_deadline_lets_the_client_give_up_before_it(deadline_s: float) -> None:
    given = config(deadline_s)
    request, delivery = given["request_timeout_ms"], given["delivery_timeout_ms"]
    assert isinstance(request, int)
    assert isinstance(delivery, int)
    assert request < delivery < deadline_s * 1000


def test_translate_options_gives_the_clients_names() -> None:
    given = config(compression_type="zstd", linger_ms="5", client_id="shop", batch_size=1000)
    assert given["compression_type"] == "zstd"
    assert given["linger_ms"] == 5
    assert given["client_id"] == "shop"
    assert given["batch_size"] == 1000


def test_translate_security_gives_the_clients_names(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(authority)
    given = config(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="shop",
        sasl_password=SECRET,
        ssl_ca_location=str(authority),
        ssl_endpoint_identification_algorithm="none",
    )
    assert given["security_protocol"] == "SASL_SSL"
    assert given["sasl_mechanism"] == "SCRAM-SHA-512"
    assert given["sasl_plain_username"] == "shop"
    assert given["sasl_plain_password"] == SECRET
    assert given["ssl_cafile"] == str(authority)
    assert given["ssl_check_hostname"] is False


def test_translate_compression_none_gives_none() -> None:
    assert config(compression_type="none")["compression_type"] is None


def test_table_names_only_what_the_client_has() -> None:
    known = KafkaProducer.DEFAULT_CONFIG.keys()
    assert {keyword for keyword, _ in OPTIONS.values()} <= known
    assert config().keys() <= known


@pytest.mark.parametrize("name", sorted(OWNED))
def test_give_an_option_of_the_bridges_own_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^options\.{name}: .{{20,}}"):
        producer_config({**SERVERS, "options": {name: "x"}}, 15.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"options": {"compresion.type": "zstd"}}, "did you mean compression.type?"),
        ({"options": {"zzz": 1}}, "options.zzz: unknown option$"),
        ({"options": {"linger.ms": "soon"}}, "expected a whole number; got another value"),
        ({"options": {"linger.ms": True}}, "expected a whole number; got another value"),
        ({"options": {"linger.ms": 3000}}, "expected at most 2250"),
        ({"options": {"compression.type": "rar"}}, "expected one of none, gzip"),
        ({"options": {"security.protocol": "ssl"}}, "expected one of PLAINTEXT, SSL"),
        ({"options": {"client.id": 7}}, "expected text; got another value"),
        ({"options": ["acks"]}, "options: expected a mapping"),
        ({"option": {}}, "option: unknown key, did you mean options?"),
        ({"client": "confluent"}, "client: expected kafka-python or librdkafka; got 'confluent'"),
        ({"bootstrap_servers": []}, "bootstrap_servers: expected a list"),
        ({"bootstrap_servers": None}, "bootstrap_servers: expected a list"),
        ({"bootstrap_servers": [9092]}, "bootstrap_servers: expected host:port; got 9092"),
    ],
)
def test_open_with_wrong_settings_is_refused(settings: Mapping[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_publisher({"type": "kafka", **SERVERS, **settings}, 15.0)


def test_open_with_a_wrong_password_does_not_show_it() -> None:
    with pytest.raises(ConfigError) as raised:
        open_publisher({**SERVERS, "options": {"sasl.password": 12345}}, 15.0)
    assert "12345" not in str(raised.value)


def test_open_takes_servers_as_text() -> None:
    given = producer_config({"bootstrap_servers": "a:1, b:2"}, 15.0)
    assert given["bootstrap_servers"] == ["a:1", "b:2"]


def test_open_connects_to_nothing_before_the_first_use() -> None:
    open_publisher({"bootstrap_servers": ["no-such-host.invalid:1"]}, 15.0).close()
