"""duebridge: delayed delivery for Kafka and RabbitMQ through a Redis-backed delay store.

Names are imported on first use: the command line starts without the store and the configuration.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duebridge.async_producer import AsyncProducer
    from duebridge.envelope import Envelope, Target
    from duebridge.errors import (
        BridgeError,
        ConfigError,
        EnvelopeError,
        Indeterminate,
        StoreError,
        StoreFull,
        StoreUnavailable,
        StoreUnfit,
        UnknownRoute,
    )
    from duebridge.producer import Producer
    from duebridge.receipt import Known, Receipt

__all__ = [
    "AsyncProducer",
    "BridgeError",
    "ConfigError",
    "Envelope",
    "EnvelopeError",
    "Indeterminate",
    "Known",
    "Producer",
    "Receipt",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StoreUnfit",
    "Target",
    "UnknownRoute",
]

_MODULES = {
    "AsyncProducer": "duebridge.async_producer",
    "BridgeError": "duebridge.errors",
    "ConfigError": "duebridge.errors",
    "Envelope": "duebridge.envelope",
    "EnvelopeError": "duebridge.errors",
    "Indeterminate": "duebridge.errors",
    "Known": "duebridge.receipt",
    "Producer": "duebridge.producer",
    "Receipt": "duebridge.receipt",
    "StoreError": "duebridge.errors",
    "StoreFull": "duebridge.errors",
    "StoreUnavailable": "duebridge.errors",
    "StoreUnfit": "duebridge.errors",
    "Target": "duebridge.envelope",
    "UnknownRoute": "duebridge.errors",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
