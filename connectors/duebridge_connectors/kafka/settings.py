"""Converts a broker's settings into keyword arguments of `KafkaProducer`."""

from collections.abc import Mapping

from duebridge.errors import ConfigError, did_you_mean
from duebridge.ports.settings import MistakeCollector
from duebridge_connectors.kafka.kafka_python.network import DIRECT
from duebridge_connectors.kafka.options import IDLE, OPTIONS, client_options
from duebridge_connectors.kafka.security import check_security

SETTINGS = ("type", "bootstrap_servers", "client", "options")
CLIENTS = ("kafka-python", "librdkafka")

# Defaults that options override. A typical batch fits into one produce batch; lingering would not
# help, because the connector hands over whole batches (figures in README.md).
DEFAULTS: Mapping[str, object] = {
    "batch_size": 262_144,
    "client_id": "duebridge",
    "linger_ms": 0,
    "reconnect_backoff_ms": 1_000,  # the client's default of 50 ms floods an absent broker
    "reconnect_backoff_max_ms": 2_000,
}

# Shares of the publish deadline. The client times out first, so that its error is reported.
REQUEST_SHARE = 0.7
DELIVERY_SHARE = 0.85
MAX_BOOTSTRAP_S = 4.0
ANY_DEADLINE_S = 3600.0  # skips the checks against the publish deadline


def producer_config(settings: Mapping[str, object], publish_deadline_s: float) -> dict[str, object]:
    """Return the keyword arguments of `KafkaProducer` for a broker of `type: kafka`.

    Raises `ConfigError` with the key, the expected and the actual value of each mistake. What
    options have to do with one another is checked once each is valid.
    """
    options = checked_options(settings)
    if client_of(settings) == "librdkafka":
        # librdkafka has checked its own options; kafka-python only inspects topics.
        options = {name: options[name] for name in options if name in OPTIONS and name != IDLE}
    mistakes = MistakeCollector()
    with mistakes.collecting():
        servers = servers_of(settings)
    with mistakes.collecting():
        given = {**DEFAULTS, **client_options(options)}
        check_security(options)
        check_linger(given["linger_ms"], publish_deadline_s)
    mistakes.raise_any()
    return {**given, **_owned(servers, publish_deadline_s)}


def client_of(settings: Mapping[str, object]) -> str:
    """Return the name of the publishing client; raises `ConfigError`."""
    client = settings.get("client", CLIENTS[0])
    if client not in CLIENTS:
        raise ConfigError(f"client: expected {' or '.join(CLIENTS)}; got {client!r}")
    return str(client)


def checked_options(settings: Mapping[str, object]) -> Mapping[str, object]:
    """Return the `options`; raises `ConfigError` for an unknown setting."""
    for key in settings:
        if key not in SETTINGS:
            raise ConfigError(f"{key}: unknown key{did_you_mean(key, SETTINGS)}")
    options = settings.get("options", {})
    if not isinstance(options, Mapping):
        got = type(options).__name__
        raise ConfigError(f"options: expected a mapping of Kafka's option names; got {got}")
    return options


def servers_of(settings: Mapping[str, object]) -> list[str]:
    """Return the bootstrap servers, each as host:port; raises `ConfigError`.

    One item may list several with commas, as the usual `${KAFKA_BOOTSTRAP}` does.
    """
    servers = settings.get("bootstrap_servers")
    items = [servers] if isinstance(servers, str) else servers
    if not isinstance(items, list | tuple) or not items:
        raise ConfigError(f"bootstrap_servers: expected a list of host:port; got {servers!r}")
    found: list[str] = []
    mistakes = MistakeCollector()
    for index, item in enumerate(items):
        with mistakes.collecting():
            found += _servers_in(f"bootstrap_servers.{index}", item)
    mistakes.raise_any()
    return found


def _servers_in(key: str, item: object) -> list[str]:
    names = [name.strip() for name in item.split(",")] if isinstance(item, str) else []
    if not names or not all(map(_has_port, names)):
        raise ConfigError(f"{key}: expected host:port; got {_shown(item)}")
    return names


def _has_port(server: str) -> bool:
    host, _, port = server.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536


def _shown(server: object) -> str:
    return "a login" if "@" in str(server) else repr(server)  # never a password


def check_linger(linger_ms: object, publish_deadline_s: float) -> None:
    """Raise `ConfigError` for a linger time too long for the publish deadline."""
    most = int(publish_deadline_s * 1000 * (DELIVERY_SHARE - REQUEST_SHARE))
    if not isinstance(linger_ms, int) or linger_ms > most:
        raise ConfigError(
            f"options.linger.ms: expected at most {most}, by the publish deadline; got {linger_ms}"
        )


def _owned(servers: list[str], publish_deadline_s: float) -> dict[str, object]:
    deadline_ms = publish_deadline_s * 1000
    return {
        "bootstrap_servers": servers,
        "acks": "all",
        "enable_idempotence": False,
        "max_in_flight_requests_per_connection": 1,
        "allow_auto_create_topics": False,
        "retries": 0,
        "request_timeout_ms": int(deadline_ms * REQUEST_SHARE),
        "delivery_timeout_ms": int(deadline_ms * DELIVERY_SHARE),
        "max_block_ms": int(min(deadline_ms / 10, 1_000)),
        "bootstrap_timeout_ms": int(min(deadline_ms / 2, MAX_BOOTSTRAP_S * 1000)),
        "metrics_enabled": False,
        "proxy_url": DIRECT,
    }
