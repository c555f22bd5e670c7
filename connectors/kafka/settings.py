"""From the configuration's mapping of a broker to what the producer is built with."""

from collections.abc import Mapping

from bridge.errors import ConfigError
from connectors.kafka.options import client_options, did_you_mean
from connectors.kafka.sockets import DIRECT

SETTINGS = ("type", "bootstrap_servers", "client", "options")

# What an option may change. The batch size is what a whole batch of ordinary messages fits in, and
# it goes out without lingering, since it was handed over whole (connectors/README.md has figures).
DEFAULTS: Mapping[str, object] = {
    "batch_size": 262_144,
    "client_id": "duebridge",
    "linger_ms": 0,
    "reconnect_backoff_max_ms": 1_000,
}

# Shares of the publish deadline: the client gives up first, so that its own words are heard.
REQUEST_SHARE = 0.7
DELIVERY_SHARE = 0.85
MOST_BOOTSTRAP_S = 4.0


def producer_config(settings: Mapping[str, object], publish_deadline_s: float) -> dict[str, object]:
    """Return the keyword arguments of `KafkaProducer` for a broker of `type: kafka`.

    Raises `ConfigError`, which names the key, what was expected and what came.
    """
    _check_keys(settings)
    _check_client(settings.get("client", "kafka-python"))
    given = {**DEFAULTS, **client_options(_options(settings.get("options", {})))}
    _check_linger(given["linger_ms"], publish_deadline_s)
    return {**given, **_owned(_servers(settings.get("bootstrap_servers")), publish_deadline_s)}


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
        "bootstrap_timeout_ms": int(min(deadline_ms / 2, MOST_BOOTSTRAP_S * 1000)),
        "metrics_enabled": False,
        "proxy_url": DIRECT,
    }


def _check_keys(settings: Mapping[str, object]) -> None:
    for key in settings:
        if key not in SETTINGS:
            raise ConfigError(f"{key}: unknown key{did_you_mean(key, SETTINGS)}")


def _check_client(client: object) -> None:
    if client != "kafka-python":
        raise ConfigError(f"client: expected kafka-python, the only one yet; got {client!r}")


def _check_linger(linger_ms: object, publish_deadline_s: float) -> None:
    most = int(publish_deadline_s * 1000 * (DELIVERY_SHARE - REQUEST_SHARE))
    if not isinstance(linger_ms, int) or linger_ms > most:
        raise ConfigError(
            f"options.linger.ms: expected at most {most}, by the publish deadline; got {linger_ms}"
        )


def _options(options: object) -> Mapping[str, object]:
    if not isinstance(options, Mapping):
        raise ConfigError(f"options: expected a mapping of Kafka's option names; got {options!r}")
    return options


def _servers(servers: object) -> list[str]:
    names = servers.split(",") if isinstance(servers, str) else servers
    if not isinstance(names, list | tuple) or not names:
        raise ConfigError(f"bootstrap_servers: expected a list of host:port; got {servers!r}")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"bootstrap_servers: expected host:port; got {name!r}")
    return [name.strip() for name in names]
