"""Adapts `TokenSource` to kafka-python's interface."""

from kafka.net.sasl.oauth import AbstractTokenProvider

from duebridge_connectors.kafka.oauth import TokenSource


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Provides the current token to new connections."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    def token(self) -> str:
        """Return a token. Raises `TokenFailed`, which fails the connection."""
        return self._source.current()[0]
