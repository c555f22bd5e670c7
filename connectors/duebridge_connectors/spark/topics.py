"""What a job asks of a Kafka topic beside its records: which topic it is, and where it ends.

It is asked by the Java client that Spark's connector brings, with the options of the read itself: a
topic that can be asked about can be read.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from duebridge.errors import ConfigError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.spark.kafka import PACKAGE

_PREFIX = "kafka."
_DEADLINE_MS = 15_000


class Topic(NamedTuple):
    """A topic of one life: deleted and made anew it has the same name and another id."""

    name: str
    id: str
    partitions: tuple[int, ...]


def topic_of(spark: SparkSession, options: Mapping[str, str], name: str) -> Topic:
    """Return the topic that has this name now.

    Raises `ConfigError` where the session lacks the connector, and `BrokerUnavailable` where no
    broker answers, or none knows the topic.
    """
    with _opened(spark, options, name) as admin:
        names = _jvm(spark).java.util.ArrayList()
        names.add(name)
        found = admin.describeTopics(names).allTopicNames().get()[name]
        numbers = tuple(sorted(each.partition() for each in found.partitions()))
        return Topic(name, found.topicId().toString(), numbers)


def end_of(spark: SparkSession, options: Mapping[str, str], topic: Topic) -> str:
    """Return where the topic ends by now, as the option `endingOffsets` takes it.

    Raises as `topic_of` does.
    """
    jvm = _jvm(spark)
    with _opened(spark, options, topic.name) as admin:
        latest = jvm.org.apache.kafka.clients.admin.OffsetSpec.latest()
        asked = jvm.java.util.HashMap()
        for number in topic.partitions:
            asked.put(jvm.org.apache.kafka.common.TopicPartition(topic.name, number), latest)
        found = admin.listOffsets(asked).all().get()
        offsets = {str(place.partition()): found[place].offset() for place in found}
    return json.dumps({topic.name: offsets})


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm


@contextmanager
def _opened(spark: SparkSession, options: Mapping[str, str], name: str) -> Iterator[Any]:
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
        raise BrokerUnavailable(f"topic {name}: {_said(error)}") from error


def _said(error: Py4JJavaError) -> str:
    """Return the innermost cause, which says what is the matter; Kafka's own has no secret."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getMessage() or cause.getClass().getSimpleName())
