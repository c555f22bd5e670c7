"""The contract of sources on the real Kafka, with both clients."""

from tests.contract.sources import SourceContract


class TestKafkaSources(SourceContract):
    """Its `broker` is that of this folder."""
