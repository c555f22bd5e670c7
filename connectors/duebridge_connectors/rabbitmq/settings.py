"""Converts a broker's settings into pika's connection parameters."""

from collections.abc import Mapping
from urllib.parse import parse_qs, urlencode, urlsplit

from pika import SSLOptions, URLParameters
from pika.connection import Parameters
from pika.credentials import ExternalCredentials

from duebridge.config.store_url import PERCENT_ENCODED, is_cut_by_password
from duebridge.errors import ConfigError, did_you_mean
from duebridge.ports.settings import MistakeCollector
from duebridge.ports.tls import TlsFiles, client_context
from duebridge_connectors.rabbitmq.handshake import try_values

SETTINGS = ("type", "url", "options")

# A dead peer is noticed after heartbeat + 5 seconds. A connection that the broker keeps blocked is
# kept as well, since only it is told when the alarm is over; in the end a new one may know better.
DEFAULTS: Mapping[str, object] = {
    "heartbeat": 30,
    "blocked_connection_timeout": 300,
    "socket_timeout": 5,
    "stack_timeout": 10,
    "client_properties": {"connection_name": "duebridge"},
}
PARSED_HERE = ("auth_mechanism", "ssl_options")  # read here, never from the url
OPTIONS = (*DEFAULTS, *PARSED_HERE, "channel_max", "frame_max", "locale", "tcp_options")
_URL = "amqp://user:password@host:port/vhost"
SCHEMES = ("amqp://", "amqps://")
MECHANISMS = ("PLAIN", "EXTERNAL")
_TLS_FILES = TlsFiles("ca_certs", "certfile", "keyfile", "password")
_TLS_NAMES = (*map(str, _TLS_FILES), "server_hostname")

_IN_URL = "it is part of the url"
_RECONNECTS = "the bridge itself reconnects, with a growing and random delay"
OWNED: Mapping[str, str] = {
    "host": _IN_URL,
    "port": _IN_URL,
    "virtual_host": _IN_URL,
    "credentials": f"{_IN_URL}: amqp://user:password@host",
    "connection_attempts": _RECONNECTS,
    "retry_delay": _RECONNECTS,
}


def connection_parameters(settings: Mapping[str, object]) -> Parameters:
    """Return pika's parameters for a broker of `type: rabbitmq`.

    An option may stand in `options` or in the query of the url, under pika's name for it.

    Raises `ConfigError`, with the key, the expected and the actual value (never a password) of each
    mistake. What url and options have to do with one another is checked once each is valid.
    """
    for key in settings:
        if key not in SETTINGS:
            raise ConfigError(f"{key}: unknown key{did_you_mean(key, SETTINGS)}")
    given = _options(settings.get("options", {}))
    mistakes = MistakeCollector()
    with mistakes.collecting():
        url = _url(settings.get("url"))
        in_url = _url_options(url)
        parameters = _parse(url, f"url: expected {_URL}")
        if is_cut_by_password(url):
            raise ConfigError(f"url: expected user, password and vhost {PERCENT_ENCODED}")
    values: dict[str, object] = {}
    for name, value in {**DEFAULTS, **given}.items():
        with mistakes.collecting():
            _check_name(name)
            if name not in PARSED_HERE:
                values[name] = _value(name, value)
    mistakes.raise_any()
    for name, value in values.items():
        if name not in in_url or name in given:
            setattr(parameters, name, value)
    try_values(parameters)
    _set_security(parameters, url, given)
    return parameters


def _url(given: object) -> str:
    if not isinstance(given, str) or not given.startswith(SCHEMES):
        raise ConfigError(f"url: expected {_URL}, or amqps://")
    return given


def _set_security(parameters: Parameters, url: str, given: Mapping[str, object]) -> None:
    """Set the TLS context and the authentication mechanism."""
    if parameters.ssl_options is not None:  # since the url is of amqps
        parameters.ssl_options = _ssl_options(given.get("ssl_options", {}))
    elif "ssl_options" in given:
        raise ConfigError("options.ssl_options: expected a url of amqps://; got one of amqp://")
    mechanism = given.get("auth_mechanism", "PLAIN")
    if mechanism not in MECHANISMS:
        raise ConfigError(f"options.auth_mechanism: expected one of {', '.join(MECHANISMS)}")
    if mechanism == "EXTERNAL":
        _check_external(url, given)
        parameters.credentials = ExternalCredentials()


def _check_external(url: str, given: Mapping[str, object]) -> None:
    tls = given.get("ssl_options")
    if not isinstance(tls, Mapping) or "certfile" not in tls:
        expected = "options.ssl_options.certfile, the client's certificate"
        raise ConfigError(f"options.auth_mechanism: EXTERNAL needs {expected}")
    if "@" in urlsplit(url).netloc:
        raise ConfigError("url: expected no user and password beside auth_mechanism: EXTERNAL")


def _ssl_options(given: object) -> SSLOptions:
    """Return pika's TLS options; the broker's certificate and host name are always verified.

    `server_hostname` is the name in the certificate, where that is not the url's host. Raises
    `ConfigError` for a name or a file that cannot be used.
    """
    options = _checked_tls(given)
    files = TlsFiles(*(options.get(str(name)) for name in _TLS_FILES))
    context = client_context(files, _TLS_FILES, "options.ssl_options.")
    return SSLOptions(context, options.get("server_hostname"))


def _checked_tls(given: object) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"options.ssl_options: expected a mapping of {', '.join(_TLS_NAMES)}")
    for name, value in given.items():
        if name not in _TLS_NAMES:
            expected = f"expected one of {', '.join(_TLS_NAMES)}"
            raise ConfigError(f"options.ssl_options.{name}: unknown option, {expected}")
        if not isinstance(value, str) or not value:
            raise ConfigError(f"options.ssl_options.{name}: expected text; got another value")
    return given


def _options(options: object) -> Mapping[str, object]:
    if not isinstance(options, Mapping):
        got = type(options).__name__
        raise ConfigError(f"options: expected a mapping of pika's option names; got {got}")
    return options


def _url_options(url: str) -> Mapping[str, object]:
    found = parse_qs(url.partition("?")[2])
    for name in found:
        _check_name(name)
        if name in PARSED_HERE:
            raise ConfigError(f"options.{name}: expected beside the url; got it in its query")
    return found


def _check_name(name: str) -> None:
    if name in OWNED:
        raise ConfigError(f"options.{name}: {OWNED[name]}")
    if name not in OPTIONS:
        raise ConfigError(f"options.{name}: unknown option{did_you_mean(name, OPTIONS)}")


def _value(name: str, value: object) -> object:
    """Return an option as pika parses it out of a url, where each has a documented text form."""
    if value is None:
        raise ConfigError(f"options.{name}: expected a value; got none")
    as_text = repr(dict(value)) if isinstance(value, Mapping) else value
    query = urlencode({name: as_text})
    got = "a text" if isinstance(value, str) else repr(value)  # a text may be a resolved secret
    single = _parse(f"amqp:///?{query}", f"options.{name}: refused; got {got}")
    return getattr(single, name)


def _parse(url: str, complaint: str) -> Parameters:
    try:
        return URLParameters(url)
    except (ValueError, TypeError, AttributeError, LookupError, SyntaxError, OSError):
        # Not chained: the errors of pika and urllib may contain the password.
        raise ConfigError(complaint) from None
