"""duebridge: delayed delivery for Kafka and RabbitMQ through a Redis-backed delay store."""

from bridge.async_producer import AsyncProducer
from bridge.envelope import Envelope, Target
from bridge.errors import (
    BridgeError,
    ConfigError,
    EnvelopeError,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnfit,
)
from bridge.producer import Producer
from bridge.receipt import Known, Receipt

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
