"""The brokers of the configuration, told apart by their `type`."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from duebridge.config.fields import DeepOptions, Model, Options, Text


class KafkaBroker(Model):
    """A Kafka cluster."""

    type: Literal["kafka"]
    bootstrap_servers: Annotated[list[Text], Field(min_length=1, repr=False)]
    """Where to begin: host:port of some of the cluster's brokers."""
    client: Literal["kafka-python", "librdkafka"] = "kafka-python"
    """The client library that publishes."""
    options: Options = Field({}, repr=False)
    """The client's options, by Kafka's own dotted names."""


class RabbitBroker(Model):
    """A RabbitMQ server or cluster."""

    type: Literal["rabbitmq"]
    url: Annotated[Text, Field(repr=False)]
    """amqp://user:password@host:port/vhost, or amqps://"""
    options: DeepOptions = Field({}, repr=False)
    """Connection parameters, by pika's names."""


class MemoryBroker(Model):
    """A broker in memory, for tests."""

    type: Literal["memory"]
    options: Options = Field({}, repr=False)
    """`name`, where a test wants to find it."""


Broker: TypeAlias = Annotated[
    KafkaBroker | RabbitBroker | MemoryBroker, Field(discriminator="type")
]
