"""duebridge: delayed delivery for Kafka and RabbitMQ through a Redis-backed delay store."""

from duebridge.async_producer import AsyncProducer
from duebridge.envelope import Envelope, Target
from duebridge.errors import (
    BridgeError,
    ConfigError,
    EnvelopeError,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnfit,
)
from duebridge.producer import Producer
from duebridge.receipt import Known, Receipt

__all__ = [
    "AsyncProducer",
    "BridgeError",
    "ConfigError",
    "Envelope",
    "EnvelopeError",
    "Known",
    "Producer",
    "Receipt",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StoreUnfit",
    "Target",
]
