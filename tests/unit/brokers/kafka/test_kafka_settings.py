"""What a broker's configuration becomes, and what is refused with the reason."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme

from duebridge.errors import ConfigError
from duebridge_connectors import kafka
from duebridge_connectors.kafka import librdkafka, open_publisher
from duebridge_connectors.kafka.librdkafka.settings import OWNED as LIB_OWNED
from duebridge_connectors.kafka.librdkafka.settings import producer_config as lib_producer_config
from duebridge_connectors.kafka.options import MIN_IDLE_MS, OPTIONS, OWNED
from duebridge_connectors.kafka.settings import producer_config
from duebridge_connectors.kafka.source.settings import REQUEST_MS

from kafka import KafkaProducer  # isort: skip

SECRET = "open sesame"  # noqa: S105 - nobody's
SERVERS = {"bootstrap_servers": ["localhost:9092"]}
TOKEN = ("token", 4_000_000_000.0)


def config(deadline_s: float = 15.0, **options: object) -> Mapping[str, object]:
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    return producer_config({"type": "kafka", **SERVERS, "options": dotted}, deadline_s)


def lib_config(deadline_s: float = 15.0, **options: object) -> Mapping[str, object]:
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    return lib_producer_config({**SERVERS, "options": dotted}, deadline_s)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (config(), {"acks": "all", "enable_idempotence": False, "retries": 0,
                    "max_in_flight_requests_per_connection": 1, "allow_auto_create_topics": False,
                    "bootstrap_servers": ["localhost:9092"]}),
        (config(compression_type="zstd", linger_ms="5", client_id="shop", batch_size=1000),
         {"compression_type": "zstd", "linger_ms": 5, "client_id": "shop", "batch_size": 1000}),
        (config(connections_max_idle_ms=-1), {"connections_max_idle_ms": 2**31 - 1}),
        (config(connections_max_idle_ms="15000"), {"connections_max_idle_ms": 15_000}),
        (lib_config(connections_max_idle_ms=-1), {"connections.max.idle.ms": "0"}),
        (lib_config(connections_max_idle_ms=0), {"connections.max.idle.ms": "0"}),
        (lib_config(connections_max_idle_ms=15_000), {"connections.max.idle.ms": "15000"}),
        (config(compression_type="none"), {"compression_type": None}),
        (producer_config({"bootstrap_servers": "a:1, b:2"}, 15.0),
         {"bootstrap_servers": ["a:1", "b:2"]}),
        (producer_config({"bootstrap_servers": ["a:1,b:2", "c:3"]}, 15.0),
         {"bootstrap_servers": ["a:1", "b:2", "c:3"]}),
        (lib_producer_config({"bootstrap_servers": ["a:1, b:2", "c:3"]}, 15.0),
         {"bootstrap.servers": "a:1,b:2,c:3"}),
        (lib_config(), {"acks": "all", "enable.idempotence": False, "message.send.max.retries": 0,
                        "max.in.flight.requests.per.connection": 1, "partitioner": "murmur2_random",
                        "allow.auto.create.topics": False, "bootstrap.servers": "localhost:9092"}),
        (lib_config(compression_type="snappy", linger_ms=5, client_id="shop", batch_size="1000"),
         {"compression.type": "snappy", "linger.ms": "5", "client.id": "shop",
          "batch.size": "1000"}),
        (lib_config(max_request_size=2_000_000, receive_buffer_bytes=4096),
         {"message.max.bytes": "2000000", "socket.receive.buffer.bytes": "4096"}),
        (lib_config(sticky_partitioning_linger_ms=7, socket_keepalive_enable=True),
         {"sticky.partitioning.linger.ms": "7", "socket.keepalive.enable": "true"}),
    ],
)  # fmt: skip
def test_translate_options_gives_the_clients_names_and_the_bridges_own_settings(
    given: Mapping[str, object], expected: Mapping[str, object]
) -> None:
    assert {name: given[name] for name in expected} == expected


@pytest.mark.parametrize("deadline_s", [3.0, 15.0, 300.0, 3600.0])
def test_translate_a_deadline_lets_the_client_give_up_before_it(deadline_s: float) -> None:
    python, lib = config(deadline_s), lib_config(deadline_s)
    request, delivery = (python[f"{name}_timeout_ms"] for name in ("request", "delivery"))
    assert request < delivery < deadline_s * 1000  # type: ignore[operator]
    request, message = (lib[f"{name}.timeout.ms"] for name in ("request", "message"))
    # It looks once a second.
    assert request <= message <= (deadline_s - 1) * 1000  # type: ignore[operator]


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
    login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "shop"}
    tls = {"ssl_cafile": str(authority), "ssl_check_hostname": False}
    expected = {"security_protocol": "SASL_SSL", "sasl_plain_password": SECRET, **login, **tls}
    assert {name: given[name] for name in expected} == expected


def test_table_names_only_what_the_client_has() -> None:
    known = KafkaProducer.DEFAULT_CONFIG.keys()
    assert {keyword for keyword, _ in OPTIONS.values()} <= known
    assert config().keys() <= known


BOTH = ["kafka-python", "librdkafka"]


@pytest.mark.parametrize("name", sorted({*OWNED, *LIB_OWNED}))
def test_give_an_option_of_the_bridges_own_is_refused_with_the_reason(name: str) -> None:
    for owned, translate in ((OWNED, producer_config), (LIB_OWNED, lib_producer_config)):
        if name in owned:
            with pytest.raises(ConfigError, match=rf"^options\.{name}: .{{15,}}"):
                translate({**SERVERS, "options": {name: "x"}}, 15.0)


@pytest.mark.parametrize(
    ("clients", "settings", "message"),
    [
        (["kafka-python"], {"options": {"compresion.type": "zstd"}},
         "did you mean compression.type?"),
        (["kafka-python"], {"options": {"zzz": 1}}, "options.zzz: unknown option$"),
        (BOTH, {"options": {"linger.ms": "soon"}}, "expected a whole number; got another value"),
        (["kafka-python"], {"options": {"linger.ms": True}},
         "expected a whole number; got another value"),
        (["kafka-python"], {"options": {"connections.max.idle.ms": 0}},
         "expected -1 for never, or a whole number from 15000 to 2147483647; got another value"),
        (BOTH, {"options": {"connections.max.idle.ms": 1000}},
         "expected -1 for never, or a whole number from 15000 to 2147483647; got another value"),
        (BOTH, {"options": {"reconnect.backoff.max.ms": "0"}}, "a whole number from 10 to "),
        (BOTH, {"options": {"reconnect.backoff.ms": 0}}, "a whole number from 10 to "),
        (BOTH, {"options": {"retry.backoff.ms": 0}}, "a whole number from 1 to "),
        (BOTH, {"options": {"max.request.size": 0}}, "a whole number from 1000 to "),
        (BOTH, {"options": {"receive.buffer.bytes": 2**31}}, "a whole number from 0 to "),
        (BOTH, {"options": {"batch.size": "9" * 5000}}, "a whole number from 0 to "),
        (BOTH, {"options": {"linger.ms": 3000}}, "expected at most 2250"),
        (["kafka-python"], {"options": {"compression.type": "rar"}}, "expected one of none, gzip"),
        (BOTH, {"options": {"security.protocol": "ssl"}}, "expected one of PLAINTEXT, SSL"),
        (["kafka-python"], {"options": {"client.id": 7}}, "expected text; got another value"),
        (BOTH, {"options": {"client.id": "x" * 40_000}}, "expected text of at most 32767 bytes"),
        (BOTH, {"options": ["acks"]}, "options: expected a mapping"),
        (BOTH, {"option": {}}, "option: unknown key, did you mean options?"),
        (["kafka-python"], {"client": "confluent"},
         "client: expected kafka-python or librdkafka; got 'confluent'"),
        (BOTH, {"bootstrap_servers": []}, "bootstrap_servers: expected a list"),
        (["kafka-python"], {"bootstrap_servers": None}, "bootstrap_servers: expected a list"),
        (["kafka-python"], {"bootstrap_servers": [9092]},
         "bootstrap_servers.0: expected host:port; got 9092"),
        (BOTH, {"bootstrap_servers": ["a:1", "b:2,c"]},
         "^bootstrap_servers.1: expected host:port; got 'b:2,c'$"),
        (BOTH, {"bootstrap_servers": ["SASL://u:open,sesame@h:1"]},
         "^bootstrap_servers.0: expected host:port; got a login$"),
        (["librdkafka"], {"options": {"compresion.type": "zstd"}},
         "unknown option, did you mean compression.type"),
        (["librdkafka"], {"options": {"zzz": 1}}, "^options.zzz: unknown option$"),
        (["librdkafka"], {"options": {"compression.type": "rar"}}, 'Invalid value "rar"'),
        (["librdkafka"], {"options": {"queued.min.messages": [1]}},
         "expected text, a number, true or false"),
        (["librdkafka"], {"options": {"socket.max.fails": -1}},
         "^options.socket.max.fails: .*outside allowed range"),
        (["librdkafka"], {"options": {"reconnect.backoff.ms": 5000}},
         "^options: .*reconnect.backoff.max.ms"),
    ],
)  # fmt: skip
def test_open_with_wrong_settings_is_refused(
    clients: list[str], settings: Mapping[str, object], message: str
) -> None:
    for client in clients:
        with pytest.raises(ConfigError, match=message):
            open_publisher({"type": "kafka", "client": client, **SERVERS, **settings}, 15.0)


@pytest.mark.parametrize("client", BOTH)
def test_open_with_a_wrong_password_does_not_show_it(client: str) -> None:
    secure = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    options = {**secure, "sasl.password": 12345}
    with pytest.raises(ConfigError) as raised:
        open_publisher({**SERVERS, "client": client, "options": options}, 15.0)
    assert "12345" not in str(raised.value)


@pytest.mark.parametrize("client", BOTH)
def test_open_connects_to_nothing_before_the_first_use(client: str) -> None:
    settings = {"client": client, "bootstrap_servers": ["no-such-host.invalid:1"]}
    open_publisher(settings, 15.0).close()


def test_translate_a_token_provider_gives_its_tokens() -> None:
    secure = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    provider = {"sasl.oauthbearer.token.provider": f"{__name__}:give_token"}
    sys.modules[__name__].give_token = lambda: TOKEN  # type: ignore[attr-defined]
    given = lib_producer_config({**SERVERS, "options": {**secure, **provider}}, 15.0)
    call = given["oauth_cb"]
    assert callable(call)
    assert call("") == TOKEN


def test_least_idle_time_is_one_that_kafka_pythons_consumer_takes() -> None:
    assert MIN_IDLE_MS > REQUEST_MS


def test_questions_by_kafka_python_leave_librdkafkas_own_options_out() -> None:
    options = {
        "client.id": "shop",
        "connections.max.idle.ms": 0,
        "sticky.partitioning.linger.ms": 7,
    }
    given = producer_config({**SERVERS, "client": "librdkafka", "options": options}, 15.0)
    assert given["client_id"] == "shop"


def test_owned_by_both_are_refused_by_both() -> None:
    assert OWNED.keys() <= LIB_OWNED.keys()


def test_open_without_the_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(librdkafka.__name__)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(kafka, "librdkafka")
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigError, match=r"confluent_kafka.*'duebridge\[kafka,librdkafka\]'"):
        open_publisher({**SERVERS, "client": "librdkafka"}, 15.0)
