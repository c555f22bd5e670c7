"""Spark's Kafka connector: its options, and the topics it reads.

`kafka_options` translates a broker of the configuration, which has librdkafka's names, to those of
the Java client; certificates and keys travel as text, so executors need no files. The driver
resolves all of it, and it reaches the tasks inside the query's plan, which does not show it.

    spark.read.format("kafka").options(**kafka_options(config, "orders")).option("subscribe", ...)
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from duebridge.config.load import resolved_broker
from duebridge.config.models import Config
from duebridge.errors import ConfigError, unknown_name
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.scheduling.route_scheduler import find_route

_PREFIX = "kafka."
COMMITTED = {f"{_PREFIX}isolation.level": "read_committed"}  # no records that were taken back
PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"

_LOGINS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_AS_THEY_ARE = ("security.protocol", "sasl.mechanism", "client.id", "client.dns.lookup")
_LOGIN = ("sasl.username", "sasl.password")
_TRUST = "ssl.ca.location"
_CHAIN = "ssl.certificate.location"
_KEY = "ssl.key.location"
_KEY_PASSWORD = "ssl.key.password"  # noqa: S105 - its name
_HOST_CHECK = "ssl.endpoint.identification.algorithm"
_KNOWN = {*_AS_THEY_ARE, *_LOGIN, _TRUST, _CHAIN, _KEY, _KEY_PASSWORD, _HOST_CHECK}
_SECURING = ("security.", "sasl.", "ssl.")


def kafka_options(config: Config, broker: str) -> dict[str, str]:
    """Return the options of Spark's Kafka source and sink for a broker of the configuration.

    Options that tune a worker's publishing are left out. Raises `ConfigError` for a broker of
    another type, an unresolvable reference, or security options unknown to the Java client.
    """
    _check_is_kafka(config, broker)
    settings = resolved_broker(config, broker)
    servers, options = settings["bootstrap_servers"], settings["options"]
    assert isinstance(servers, list)  # noqa: S101 - as the model has it
    assert isinstance(options, dict)  # noqa: S101
    try:
        secured = _secured(options)
    except ConfigError as error:
        raise ConfigError(f"brokers.{broker}.options.{error}") from None
    found = {"bootstrap.servers": ",".join(servers), **secured}
    return {f"{_PREFIX}{name}": text for name, text in found.items()}


def read_records(
    spark: SparkSession,
    reader: DataFrameReader | DataStreamReader,
    options: Mapping[str, str],
    since_ms: int = 0,
    *,
    in_order: bool = False,
) -> DataFrame:
    """Return the records of Kafka topics, with their headers.

    Of a partition all before the first record of `since_ms` or later is left out. `in_order`: one
    task reads all of a partition; else several read parts of it at once.
    """
    parts = {} if in_order else {"minPartitions": str(spark.sparkContext.defaultParallelism)}
    given = {"includeHeaders": "true", **parts, **options}
    if since_ms > 0:
        given["startingTimestamp"] = str(since_ms)
        given["startingOffsetsByTimestampStrategy"] = "latest"  # a partition without any
    return reader.format("kafka").options(**given).load()


def broker_of_route(config: Config, route: str) -> str:
    """Return the broker of a route's target; raises `ConfigError` unless it is Kafka."""
    name = find_route(config, route).target.broker
    if config.brokers[name].type != "kafka":
        raise ConfigError(
            f"route {route}: its target is not on Kafka; name the broker of the topic"
        )
    return name


def _check_is_kafka(config: Config, broker: str) -> None:
    kafkas = sorted(name for name, known in config.brokers.items() if known.type == "kafka")
    if broker not in kafkas:
        raise ConfigError(unknown_name("a Kafka broker of the configuration", broker, kafkas))


def _secured(given: Mapping[str, object]) -> dict[str, str]:
    """Return the options by their Java names; raises `ConfigError`, which starts with a name."""
    options = {name: str(value) for name, value in given.items()}
    for name in options:
        if name.startswith(_SECURING) and name not in _KNOWN:
            raise ConfigError(f"{name}: not supported by Spark's Kafka connector")
    found = {name: options[name] for name in _AS_THEY_ARE if name in options}
    if options.get(_HOST_CHECK) == "none":
        found[_HOST_CHECK] = ""
    if _TRUST in options:
        found["ssl.truststore.type"] = "PEM"
        found["ssl.truststore.certificates"] = _pem(_TRUST, options)
    return found | _identity(options) | _login(options)


def _identity(options: Mapping[str, str]) -> dict[str, str]:
    if _CHAIN not in options:
        return {}
    if _KEY not in options:
        raise ConfigError(f"{_KEY}: missing beside {_CHAIN}")
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": _pem(_CHAIN, options),
        "ssl.keystore.key": _unlocked(_pem(_KEY, options), options.get(_KEY_PASSWORD)),
    }


def _unlocked(key: str, password: str | None) -> str:
    """Return a key as PKCS #8 without a password, which Kafka reads with every Java."""
    try:
        loaded = load_pem_private_key(key.encode(), password.encode() if password else None)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        pass  # raised below: the cause may quote the key
    else:
        return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    raise ConfigError(f"{_KEY}: expected a PEM key that {_KEY_PASSWORD}, where it needs one, opens")


def _login(options: Mapping[str, str]) -> dict[str, str]:
    mechanism = options.get("sasl.mechanism")
    if mechanism is None:
        return {}
    if mechanism not in _LOGINS:
        known = ", ".join(_LOGINS)
        raise ConfigError(f"sasl.mechanism: expected one of {known} in Spark; got {mechanism!r}")
    for name in _LOGIN:
        if name not in options:
            raise ConfigError(f"{name}: missing")
    user, password = (_quoted(options[name]) for name in _LOGIN)
    words = f"{_LOGINS[mechanism]} required username={user} password={password};"
    return {"sasl.jaas.config": words}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _pem(name: str, options: Mapping[str, str]) -> str:
    try:
        return Path(options[name]).read_text("ascii")
    except OSError as error:
        raise ConfigError(f"{name}: {options[name]}: {error.strerror}") from None
    except UnicodeDecodeError:
        pass  # raised below: the cause holds the file's content
    raise ConfigError(f"{name}: {options[name]}: expected PEM")


_DEADLINE_MS = 15_000


class KafkaTopic(NamedTuple):
    """A topic with its id, which changes when the topic is recreated."""

    name: str
    id: str
    partitions: tuple[int, ...]


def topic_of(spark: SparkSession, options: Mapping[str, str], name: str) -> KafkaTopic:
    """Return the topic that has this name now.

    Asks with the Java client and the options of the read itself: a topic that answers can be read.
    Raises `ConfigError` if the session lacks the connector, and `BrokerUnavailable` if no broker
    answers or the topic is unknown.
    """
    with _admin_client(spark, options, name) as admin:
        names = _jvm(spark).java.util.ArrayList()
        names.add(name)
        found = admin.describeTopics(names).allTopicNames().get()[name]
        numbers = tuple(sorted(partition.partition() for partition in found.partitions()))
        return KafkaTopic(name, found.topicId().toString(), numbers)


def end_of(spark: SparkSession, options: Mapping[str, str], topic: KafkaTopic) -> str:
    """Return the present end of the topic as a value of the option `endingOffsets`.

    It is before the first record of a transaction that is still open: `COMMITTED` reads no further.
    Raises as `topic_of` does.
    """
    jvm = _jvm(spark)
    with _admin_client(spark, options, topic.name) as admin:
        kafka = jvm.org.apache.kafka
        latest = kafka.clients.admin.OffsetSpec.latest()
        committed = kafka.common.IsolationLevel.READ_COMMITTED
        asked = jvm.java.util.HashMap()
        for number in topic.partitions:
            asked.put(kafka.common.TopicPartition(topic.name, number), latest)
        how = kafka.clients.admin.ListOffsetsOptions(committed)
        found = admin.listOffsets(asked, how).all().get()
        offsets = {str(place.partition()): found[place].offset() for place in found}
    return json.dumps({topic.name: offsets})


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm


@contextmanager
def _admin_client(spark: SparkSession, options: Mapping[str, str], name: str) -> Iterator[Any]:
    jvm = _jvm(spark)
    clients = jvm.org.apache.kafka.clients.admin.AdminClient
    if isinstance(clients, JavaPackage):
        expected = f"expected Spark's Kafka connector; say --packages {PACKAGE}"
        raise ConfigError(f"{expected}, or --spark spark.jars=JARS")
    settings = jvm.java.util.HashMap()
    for option, value in options.items():
        settings.put(option.removeprefix(_PREFIX), value)
    settings.put("default.api.timeout.ms", str(_DEADLINE_MS))
    settings.put("request.timeout.ms", str(_DEADLINE_MS))
    try:
        admin = clients.create(settings)
        try:
            yield admin
        finally:
            admin.close()
    except Py4JJavaError as error:
        raise BrokerUnavailable(f"topic {name}: {_root_cause(error)}") from error


def _root_cause(error: Py4JJavaError) -> str:
    """Return the innermost cause; Kafka's messages contain no secrets."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getMessage() or cause.getClass().getSimpleName())
