"""A small whole configuration to break, and what is then said about it."""

import pytest

from duebridge.config.load import load_config_text
from duebridge.config.models import Config
from duebridge.errors import ConfigError

BROKERS = """\
version: 1
brokers:
  orders: {type: kafka, bootstrap_servers: ["localhost:9092"]}
  billing: {type: rabbitmq, url: "amqp://localhost"}
"""
ROUTE = """\
routes:
  r:
    target: {broker: orders, topic: t}
"""
WHOLE = BROKERS + ROUTE  # seven lines


def loaded(text: str) -> Config:
    return load_config_text(text, "f.yaml")


def refusal(text: str) -> list[str]:
    """Return the lines of the refusal; pydantic's error, which holds values, is not in it."""
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return str(caught.value).splitlines()
