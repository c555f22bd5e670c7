"""The settings of an intake's Kafka source. Imports no client."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from duebridge.envelope import Target
from duebridge.ports.settings import Text, expected
from duebridge.ports.source import SourceSettings
from duebridge_connectors.kafka.checks.permissions import DEFAULT_GROUP
from duebridge_connectors.kafka.checks.topics import EXPECTED, is_topic


def _topic(name: str) -> str:
    if not is_topic(name):
        raise expected(EXPECTED)
    return name


class KafkaSourceSettings(SourceSettings):
    """A Kafka topic, read by a consumer group."""

    topic: Annotated[Text, Field(max_length=249), AfterValidator(_topic)]
    """The topic's name."""
    group: Annotated[Text, Field(max_length=255)] = DEFAULT_GROUP
    """The consumer group whose members share the topic's partitions."""

    def shared(self) -> Mapping[str, str]:
        """Return what is read; see `SourceSettings.shared`."""
        return {"broker": self.broker, "topic": self.topic, "group": self.group}

    def target(self) -> Target:
        """Return the topic; see `SourceSettings.target`."""
        return Target(self.broker, topic=self.topic)
