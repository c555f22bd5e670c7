"""Checks that the TLS and SASL options are consistent, for both clients."""

from collections.abc import Iterator, Mapping

from duebridge.errors import ConfigError
from duebridge.ports.tls import TlsFiles, client_context
from duebridge_connectors.kafka.login import PROVIDER

_FILES = TlsFiles(
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"
)
_LOGIN = ("sasl.username", "sasl.password")
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "PLAIN": _LOGIN,
    "SCRAM-SHA-256": _LOGIN,
    "SCRAM-SHA-512": _LOGIN,
    "OAUTHBEARER": (PROVIDER,),
}


def check_security(options: Mapping[str, object]) -> None:
    """Raise `ConfigError` for a missing option, one without effect, or an unusable file."""
    protocol = str(options.get("security.protocol", "PLAINTEXT"))
    for name in options:
        family = name.partition(".")[0].upper()
        if family in {"SSL", "SASL"} and family not in protocol.split("_"):
            expected = f"{family} or SASL_SSL" if family == "SSL" else "SASL_SSL or SASL_PLAINTEXT"
            raise ConfigError(
                f"options.{name}: has no effect without security.protocol: {expected}"
            )
    for name in _required(protocol, str(options.get("sasl.mechanism", ""))):
        if name not in options:
            raise ConfigError(f"options.{name}: missing key")
    if "SSL" in protocol.split("_"):
        files = TlsFiles(*(_text(options.get(str(name))) for name in _FILES))
        client_context(files, _FILES, "options.")


def _required(protocol: str, mechanism: str) -> Iterator[str]:
    """Yield the options that the protocol and the mechanism require."""
    if protocol.startswith("SASL"):
        yield "sasl.mechanism"
        yield from _NEEDS.get(mechanism, ())


def _text(value: object) -> str | None:
    return None if value is None else str(value)
