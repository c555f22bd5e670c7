"""Converts a broker's settings into librdkafka's configuration."""

import logging
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaException, Producer

from duebridge.errors import ConfigError, did_you_mean
from duebridge.ports.settings import MistakeCollector
from duebridge_connectors.kafka.login import PROVIDER, TokenSource
from duebridge_connectors.kafka.options import IDLE, OPTIONS, converted, refuse_owned, translated
from duebridge_connectors.kafka.options import OWNED as OWNED_BY_BOTH
from duebridge_connectors.kafka.security import check_security
from duebridge_connectors.kafka.settings import (
    DELIVERY_SHARE,
    REQUEST_SHARE,
    check_linger,
    checked_options,
    servers_of,
)

log = logging.getLogger(__name__)

# Defaults that options override. Lingering would not help: batches are handed over whole.
DEFAULTS: Mapping[str, object] = {
    "client.id": "duebridge",
    "enable.metrics.push": "false",
    "linger.ms": 0,
    "log.connection.close": "false",
    "message.max.bytes": 1_048_576,
    "reconnect.backoff.max.ms": 2_000,
    # It forgets its back-off as soon as a connection is accepted, so this sets the rate.
    "reconnect.backoff.ms": 1_000,
}

# Kafka's names that differ in librdkafka.
_RENAMED = {
    "max.request.size": "message.max.bytes",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}

_CALL = "the bridge sets it: a configuration has no functions"
_QUEUE = "the bridge sets it: worker.in_flight and worker.in_flight_bytes bound it"
_SINGLE = "the bridge sets it: it retries refused records one by one; write batch.size"

OWNED: Mapping[str, str] = {
    **OWNED_BY_BOTH,
    "batch.num.messages": _SINGLE,
    "compression.codec": "write compression.type",
    "delivery.report.only.error": "the bridge sets it: every confirm counts",
    "enable.idempotence": (
        "the bridge sets it: false, since an idempotent producer can fail for good, and"
        " retries by itself"
    ),
    "error_cb": _CALL,
    "log_cb": _CALL,
    "logger": _CALL,
    "max.in.flight": OWNED_BY_BOTH["max.in.flight.requests.per.connection"],
    "message.max.bytes": "write max.request.size",
    "message.send.max.retries": OWNED_BY_BOTH["retries"],
    "message.timeout.ms": OWNED_BY_BOTH["delivery.timeout.ms"],
    "metadata.broker.list": OWNED_BY_BOTH["bootstrap.servers"],
    "oauth_cb": f"write {PROVIDER}",
    "on_delivery": _CALL,
    "queue.buffering.max.kbytes": _QUEUE,
    "queue.buffering.max.messages": _QUEUE,
    "queue.buffering.max.ms": "write linger.ms",
    "request.required.acks": OWNED_BY_BOTH["acks"],
    "sasl.mechanisms": "write sasl.mechanism",
    "socket.timeout.ms": OWNED_BY_BOTH["request.timeout.ms"],
    "stats_cb": _CALL,
    "throttle_cb": _CALL,
    "topic.metadata.propagation.max.ms": OWNED_BY_BOTH["allow.auto.create.topics"],
}

_MAX_KB = 2_147_483_647
# librdkafka scans for timeouts once a second; its timeout is earlier by that much.
_TIMEOUT_SCAN_S = 1.0


def producer_config(settings: Mapping[str, object], publish_deadline_s: float) -> dict[str, object]:
    """Return the `confluent_kafka.Producer` configuration for `client: librdkafka`.

    librdkafka itself validates the options, including its own. Raises `ConfigError` with the key,
    the expected and the actual value of each mistake. What options have to do with one another is
    checked once each is valid.
    """
    options = checked_options(settings)
    mistakes = MistakeCollector()
    with mistakes.collecting():
        servers = servers_of(settings)
    with mistakes.collecting():
        given = {**DEFAULTS, **translated(options, _translated)}
        check_security(options)
        check_linger(int(str(given["linger.ms"])), publish_deadline_s)
        config = {**given, **_owned(publish_deadline_s)}
        _check_with_librdkafka(config, options)
    mistakes.raise_any()
    return {**config, "bootstrap.servers": ",".join(servers)}


def _translated(name: str, value: object) -> tuple[str, object]:
    refuse_owned(name, OWNED)
    if name == PROVIDER:
        source = TokenSource(str(converted(name, value, _scalar)))
        return "oauth_cb", lambda _: source.current()
    if name == IDLE and str(value) in ("-1", "0"):
        return name, "0"  # its word for never
    # librdkafka has every codec built in, unlike kafka-python.
    convert = _scalar if name == "compression.type" else OPTIONS.get(name, ("", _scalar))[1]
    converted(name, value, convert)
    return _RENAMED.get(name, name), _scalar(value)


def _scalar(value: object) -> str:
    if not isinstance(value, str | int | float) or value == "":
        raise ValueError("text, a number, true or false")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _owned(publish_deadline_s: float) -> dict[str, object]:
    deadline_ms = publish_deadline_s * 1000
    give_up_ms = int(max(deadline_ms / 2, deadline_ms * DELIVERY_SHARE - _TIMEOUT_SCAN_S * 1000))
    return {
        "acks": "all",
        "allow.auto.create.topics": False,
        "enable.idempotence": False,
        "max.in.flight.requests.per.connection": 1,
        "message.send.max.retries": 0,
        "message.timeout.ms": give_up_ms,
        "partitioner": "murmur2_random",
        "queue.buffering.max.kbytes": _MAX_KB,
        "queue.buffering.max.messages": 0,
        "request.timeout.ms": min(give_up_ms, int(deadline_ms * REQUEST_SHARE), 900_000),
        "socket.timeout.ms": min(give_up_ms, 300_000),
        # The connector looks topics up before sending; librdkafka need not wait for them.
        "topic.metadata.propagation.max.ms": 0,
    }


def _check_with_librdkafka(config: Mapping[str, object], names: Iterable[str]) -> None:
    """Raise `ConfigError` for refused options; without servers librdkafka opens no connection."""
    # Without the token callback, which it would call at once.
    left = {name: config[name] for name in config if name != "oauth_cb"}
    mistakes = MistakeCollector()
    while words := _refusal_of(left):
        culprit = next((name for name in names if name in left and f'"{name}"' in words), "")
        mistakes.add(_refused(culprit, words))
        if not culprit:  # it refuses a combination of options
            break
        del left[culprit]
    mistakes.raise_any()


def _refusal_of(config: Mapping[str, object]) -> str:
    """Return what librdkafka refuses first; empty if it takes the configuration."""
    try:
        Producer(dict(config), logger=log)
    except KafkaException as error:
        return str(error.args[0].str().strip().removeprefix("Failed to create producer: "))
    return ""


def _refused(culprit: str, words: str) -> ConfigError:
    if not culprit:
        return ConfigError(f"options: {words}")
    if words.startswith("No such"):
        words = f"unknown option{did_you_mean(culprit, OPTIONS)}"
    return ConfigError(f"options.{culprit}: {words}")
