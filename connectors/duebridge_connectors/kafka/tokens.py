"""Tokens for OAUTHBEARER as kafka-python takes them."""

from kafka.net.sasl.oauth import AbstractTokenProvider

from duebridge_connectors.kafka.oauth import TokenSource


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Gives each new connection the current token."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    def token(self) -> str:
        """Return a token; raises `TokenFailed`, and then nothing is connected."""
        return self._source.current()[0]
