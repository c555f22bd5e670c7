"""Spark's Kafka connector by the broker of the configuration: what it is told, and a read."""

from contextlib import closing
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from duebridge.config.load import load_config
from duebridge.config.models import Config
from duebridge.errors import ConfigError
from duebridge_connectors.spark.kafka_source import kafka_options
from tests.spark.world import Sent, Topics
from tests.support.certificates import KEY_PASSWORD, Certificates
from tests.support.documented import documented
from tests.support.kafka.kafka_broker import KafkaBroker
from tests.support.kafka.own_kafka import PASSWORD, SecureKafka

BY_PASSWORD, BY_CERTIFICATE = "Kafka, user and password", "Kafka, client certificate"
SECRETS = ("canary", "PRIVATE KEY")


def configured(home: Path, orders: dict[str, object]) -> Config:
    route = {"target": {"broker": "orders", "topic": "due"}}
    file = home / "duebridge.yaml"
    brokers = {"orders": orders, "billing": {"type": "rabbitmq", "url": "amqp://localhost/"}}
    file.write_text(yaml.safe_dump({"version": 1, "brokers": brokers, "routes": {"due": route}}))
    return load_config(str(file))


def kafka(**options: str) -> dict[str, object]:
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    return {"type": "kafka", "bootstrap_servers": ["a:1", "b:2"], "options": dotted}


@pytest.mark.parametrize("title", [BY_PASSWORD, BY_CERTIFICATE])
def test_read_a_secured_topic_as_documented_and_show_no_secret(
    title: str, spark: SparkSession, secure_kafka: SecureKafka, certificates: Certificates,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    monkeypatch.setenv("KEY_PASSWORD", KEY_PASSWORD)
    port = secure_kafka.mtls if title == BY_CERTIFICATE else secure_kafka.sasl
    brokers = documented(title, certificates, f"localhost:{port}")
    options = kafka_options(configured(tmp_path, brokers["orders"]), "orders")
    with closing(KafkaBroker(f"127.0.0.1:{secure_kafka.open}")) as broker:
        topics = Topics(broker)
        topic = topics.make()
        topics.fill(topic, [Sent(b"read by Spark")])
        rows = spark.read.format("kafka").options(**options).option("subscribe", topic).load()
        assert [bytes(row["value"]) for row in rows.collect()] == [b"read by Spark"]
    plan = rows._jdf.queryExecution().toString()  # type: ignore[operator]
    assert not any(secret in plan for secret in SECRETS)


def test_options_of_a_plain_broker_are_its_servers_and_nothing_of_publishing(
    tmp_path: Path,
) -> None:
    config = configured(tmp_path, kafka(linger_ms="5", client_id="ours"))
    expected = {"kafka.bootstrap.servers": "a:1,b:2", "kafka.client.id": "ours"}
    assert kafka_options(config, "orders") == expected


def test_options_with_a_password_quote_it_as_java_reads_it(tmp_path: Path) -> None:
    given = kafka(sasl_mechanism="PLAIN", sasl_username="shop", sasl_password='a"b\\c;')  # noqa: S106
    jaas = kafka_options(configured(tmp_path, given), "orders")["kafka.sasl.jaas.config"]
    assert jaas.endswith(r' required username="shop" password="a\"b\\c;";')


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (kafka(sasl_mechanism="OAUTHBEARER"), "sasl.mechanism: expected one of PLAIN, .*; got 'O"),
        (kafka(sasl_mechanism="PLAIN", sasl_username="shop"), "sasl.password: missing"),
        (kafka(ssl_crl_location="x"), "ssl.crl.location: not supported by"),
        (kafka(ssl_ca_location="/nowhere.pem"), "ssl.ca.location: /nowhere.pem: No such file"),
        (kafka(ssl_certificate_location="x"), "ssl.key.location: missing beside"),
        (kafka(client_id="${UNSET_HERE}"), "client.id: variable UNSET_HERE: not set"),
    ],
)
def test_options_that_java_cannot_have_are_refused(
    given: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"^brokers.orders.options.{said}"):
        kafka_options(configured(tmp_path, given), "orders")


@pytest.mark.parametrize("password", [{}, {"ssl_key_password": "other"}])
def test_options_with_a_key_that_nothing_opens_are_refused(
    certificates: Certificates, tmp_path: Path, password: dict[str, str]
) -> None:
    chain, key = certificates.client, certificates.locked_key
    given = kafka(ssl_certificate_location=chain, ssl_key_location=key, **password)
    with pytest.raises(ConfigError, match=r"ssl.key.location: expected a PEM key that"):
        kafka_options(configured(tmp_path, given), "orders")


def test_options_of_a_broker_that_is_no_kafka_name_those_that_are(tmp_path: Path) -> None:
    config = configured(tmp_path, kafka())
    for name, said in (("billing", "got 'billing'"), ("order", "got 'order', did you mean orders")):
        with pytest.raises(ConfigError, match=rf"\(orders\); {said}"):
            kafka_options(config, name)
