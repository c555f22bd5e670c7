"""Maps Kafka's dotted option names to kafka-python's keywords; lists the refused options."""

from collections.abc import Callable, Mapping

from kafka.codec import has_gzip, has_lz4, has_snappy, has_zstd
from kafka.net.sasl.oauth import AbstractTokenProvider

from duebridge.errors import ConfigError, did_you_mean
from duebridge.ports.settings import MistakeCollector
from duebridge_connectors.kafka.login import PROVIDER, TokenSource

IDLE = "connections.max.idle.ms"
MOST = 2_147_483_647  # of an int32; in milliseconds, 24 days
MOST_TEXT_BYTES = 32_767  # of a text in Kafka's protocol
# A client closes idle connections just before it would use them: with 1 s each message was late by
# up to 2 s, and 0 kept kafka-python busy for ever. Its consumer wants more than `REQUEST_MS`.
MIN_IDLE_MS = 15_000
MIN_REQUEST_BYTES = 1_000  # librdkafka's; duebridge's headers alone may take half of it
MIN_BACKOFF_MS = 10  # with none, a client asks an absent broker without a pause


def client_options(options: Mapping[str, object]) -> dict[str, object]:
    """Return keyword arguments of `KafkaProducer` for options with Kafka's dotted names.

    Raises `ConfigError` for unknown options, those that the bridge sets, and invalid values.
    """
    return translated(options, _for_kafka_python)


def translated(
    options: Mapping[str, object], translate: Callable[[str, object], tuple[str, object]]
) -> dict[str, object]:
    """Return each option translated; raises one `ConfigError` for all that are refused."""
    found: dict[str, object] = {}
    mistakes = MistakeCollector()
    for name, value in options.items():
        with mistakes.collecting():
            found.update([translate(name, value)])
    mistakes.raise_any()
    return found


def _for_kafka_python(name: str, value: object) -> tuple[str, object]:
    refuse_owned(name, OWNED)
    if name not in OPTIONS:
        raise ConfigError(f"options.{name}: unknown option{did_you_mean(name, OPTIONS)}")
    keyword, convert = OPTIONS[name]
    return keyword, converted(name, value, convert)


def refuse_owned(name: str, owned: Mapping[str, str]) -> None:
    """Raise `ConfigError`, with the reason, for an option that the bridge sets."""
    if name in owned:
        raise ConfigError(f"options.{name}: {owned[name]}")


def converted(name: str, value: object, convert: Callable[[object], object]) -> object:
    """Return the converted value; raises `ConfigError` for an invalid one."""
    try:
        return convert(value)
    except ValueError as error:
        raise ConfigError(f"options.{name}: expected {error}; got another value") from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text")
    return value


def _short_text(value: object) -> str:
    text = _text(value)
    if len(text.encode()) > MOST_TEXT_BYTES:
        raise ValueError(f"text of at most {MOST_TEXT_BYTES} bytes")
    return text


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Provides the current token to new connections of kafka-python."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    def token(self) -> str:
        """Return a token. Raises `TokenFailed`, which fails the connection."""
        return self._source.current()[0]


def _token_provider(value: object) -> TokenProvider:
    return TokenProvider(TokenSource(_text(value)))


def _integer(least: int = 0) -> Callable[[object], int]:
    def convert(value: object) -> int:
        # A number from ${VARIABLE} is text.
        is_given = isinstance(value, int | str) and not isinstance(value, bool)
        if not is_given or not str(value).isdecimal():
            raise ValueError("a whole number")
        if len(str(value)) > 10 or not least <= int(str(value)) <= MOST:
            raise ValueError(f"a whole number from {least} to {MOST}")
        return int(str(value))

    return convert


def _idle_ms(value: object) -> int:
    """Return when a connection is idle; -1 is never, as for Java."""
    if str(value) == "-1":
        return MOST
    try:
        return _integer(MIN_IDLE_MS)(value)
    except ValueError as error:
        raise ValueError(f"-1 for never, or {error}") from None


def _choice(meanings: Mapping[str, object]) -> Callable[[object], object]:
    def convert(value: object) -> object:
        if not isinstance(value, str) or value not in meanings:
            raise ValueError(f"one of {', '.join(meanings)}")
        return meanings[value]

    return convert


def _one_of(*words: str) -> Callable[[object], object]:
    return _choice({word: word for word in words})


_CODECS = {"gzip": has_gzip, "snappy": has_snappy, "lz4": has_lz4, "zstd": has_zstd}


def _codec(value: object) -> object:
    if value == "none":
        return None
    if not isinstance(value, str) or value not in _CODECS:
        raise ValueError(f"one of none, {', '.join(_CODECS)}")
    if not _CODECS[value]():
        raise ValueError(f"a codec that is installed (pip install kafka-python[{value}])")
    return value


OPTIONS: dict[str, tuple[str, Callable[[object], object]]] = {
    "batch.size": ("batch_size", _integer()),
    "client.dns.lookup": (
        "client_dns_lookup",
        _one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    ),
    "client.id": ("client_id", _short_text),
    "compression.type": ("compression_type", _codec),
    IDLE: ("connections_max_idle_ms", _idle_ms),
    "linger.ms": ("linger_ms", _integer()),
    "max.request.size": ("max_request_size", _integer(MIN_REQUEST_BYTES)),
    "metadata.max.age.ms": ("metadata_max_age_ms", _integer()),
    "receive.buffer.bytes": ("receive_buffer_bytes", _integer()),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", _integer(MIN_BACKOFF_MS)),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", _integer(MIN_BACKOFF_MS)),
    "retry.backoff.ms": ("retry_backoff_ms", _integer(1)),
    "send.buffer.bytes": ("send_buffer_bytes", _integer()),
    # Security options have librdkafka's names; Java's require key stores.
    "sasl.kerberos.service.name": ("sasl_kerberos_service_name", _text),
    "sasl.mechanism": (
        "sasl_mechanism",
        _one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"),
    ),
    PROVIDER: ("sasl_oauth_token_provider", _token_provider),
    "sasl.password": ("sasl_plain_password", _text),
    "sasl.username": ("sasl_plain_username", _text),
    "security.protocol": (
        "security_protocol",
        _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    "ssl.ca.location": ("ssl_cafile", _text),
    "ssl.certificate.location": ("ssl_certfile", _text),
    "ssl.cipher.suites": ("ssl_ciphers", _text),
    "ssl.crl.location": ("ssl_crlfile", _text),
    "ssl.endpoint.identification.algorithm": (
        "ssl_check_hostname",
        _choice({"https": True, "none": False}),
    ),
    "ssl.key.location": ("ssl_keyfile", _text),
    "ssl.key.password": ("ssl_password", _text),
}

_DEADLINE = "the bridge sets it: it follows from worker.publish_deadline"
_BYTES = "the bridge sets it: bodies and keys are bytes, sent unchanged"
_PLACE = "the bridge sets it: a key goes to the partition that the Java client chooses"

OWNED: dict[str, str] = {
    "acks": "the bridge sets it: all, since an envelope leaves the store at the confirm",
    "allow.auto.create.topics": "the bridge sets it: false, so that a missing topic is noticed",
    "bootstrap.servers": "write bootstrap_servers beside options",
    "buffer.memory": "the bridge sets it: worker.in_flight_bytes bounds it",
    "delivery.timeout.ms": _DEADLINE,
    "enable.ssl.certificate.verification": (
        "a certificate is always verified; name the authority in ssl.ca.location"
    ),
    "enable.idempotence": (
        "the bridge sets it: false, since one refused record would stop an idempotent"
        " producer for good"
    ),
    "key.serializer": _BYTES,
    "max.block.ms": _DEADLINE,
    "max.in.flight.requests.per.connection": "the bridge sets it: 1, which keeps the order",
    "partitioner": _PLACE,
    "partitioner.class": _PLACE,
    "request.timeout.ms": _DEADLINE,
    "retries": "the bridge sets it: 0, since the bridge itself retries and counts",
    "sasl.jaas.config": "write sasl.mechanism, sasl.username and sasl.password",
    "transactional.id": "the bridge uses none: no transaction spans the store",
    "value.serializer": _BYTES,
}
