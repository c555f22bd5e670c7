"""Converts the option `ssl_options`, with stricter checks than pika's."""

from collections.abc import Mapping

from pika import SSLOptions

from duebridge.errors import ConfigError
from duebridge.ports.tls import TlsFiles, client_context

FILES = TlsFiles("ca_certs", "certfile", "keyfile", "password")
NAMES = (*map(str, FILES), "server_hostname")


def ssl_options(given: object) -> SSLOptions:
    """Return pika's TLS options; the broker's certificate and host name are always verified.

    `server_hostname` is the name in the certificate, where that is not the url's host. Raises
    `ConfigError` for a name or a file that cannot be used.
    """
    options = _checked(given)
    files = TlsFiles(*(options.get(str(name)) for name in FILES))
    context = client_context(files, FILES, "options.ssl_options.")
    return SSLOptions(context, options.get("server_hostname"))


def _checked(given: object) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"options.ssl_options: expected a mapping of {', '.join(NAMES)}")
    for name, value in given.items():
        if name not in NAMES:
            raise ConfigError(
                f"options.ssl_options.{name}: unknown option, expected one of {', '.join(NAMES)}"
            )
        if not isinstance(value, str) or not value:
            raise ConfigError(f"options.ssl_options.{name}: expected text; got another value")
    return given
