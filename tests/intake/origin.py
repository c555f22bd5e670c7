"""What an intake reads from that a real broker has."""

from typing import Any, NamedTuple

from tests.support.contract.source_under_test import SourceUnderTest


class Origin(NamedTuple):
    """A queue or topic, and what a configuration says of its broker and of it."""

    broker: SourceUnderTest
    name: str
    settings: dict[str, Any]
    source: dict[str, str]
