"""duebridge: delayed delivery for Kafka and RabbitMQ through a Redis-backed delay store."""

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

__all__ = [
    "BridgeError",
    "ConfigError",
    "Envelope",
    "EnvelopeError",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StoreUnfit",
    "Target",
]
