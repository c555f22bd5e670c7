"""The broker type `memory`, a test double: it confirms and keeps deliveries, and has queues."""

from duebridge_connectors.memory.broker import MEMORY, Memory
from duebridge_connectors.memory.publisher import MemoryPublisher, Script, open_publisher
from duebridge_connectors.memory.source import MemoryQueue, MemorySource

__all__ = [
    "MEMORY",
    "Memory",
    "MemoryPublisher",
    "MemoryQueue",
    "MemorySource",
    "Script",
    "open_publisher",
]
