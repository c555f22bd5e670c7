"""What a Kafka tells an admin client of its topics, as values; nothing is created or changed."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

from kafka import KafkaAdminClient
from kafka import errors as vendor
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.net.compat import KafkaNetClient
from kafka.net.selector import NetworkSelector

from duebridge_connectors.kafka.kafka_python.network import ConnectionManager

_CONFIGS = ("max.message.bytes", "min.insync.replicas", "cleanup.policy")


class CannotConnect(Exception):
    """No broker answered as one; the message says why, without a secret."""


class Topic(NamedTuple):
    """A topic as the cluster sees it; `error` is empty where it exists and may be described.

    `operations` are what this client may do with it, None where the broker does not tell;
    the limits are 0 where it does not. `in_sync` is that of the partition with the fewest.
    """

    error: str
    operations: tuple[str, ...] | None
    partitions: int
    without_leader: int
    in_sync: int
    max_message_bytes: int
    min_in_sync: int
    is_compacted: bool


class Admin:
    """One connection for questions, with the security settings that publishing has."""

    def __init__(self, producer: Mapping[str, object], deadline_s: float) -> None:
        """Connect as a producer with this configuration would; raises `CannotConnect`."""
        config = {key: producer[key] for key in producer if key in KafkaAdminClient.DEFAULT_CONFIG}
        config["bootstrap_timeout_ms"] = config["request_timeout_ms"] = int(deadline_s * 1000 / 2)
        self._manager: Any = None
        with ExitStack() as undo:
            try:
                connect = partial(self._connect, undo)
                self._client: Any = KafkaAdminClient(kafka_client=connect, **config)
            except (vendor.KafkaError, OSError, ValueError) as error:
                cause = getattr(self._manager, "failure", None) or error
                raise CannotConnect(_text(cause)) from error
            undo.pop_all()

    def _connect(self, undo: ExitStack, **config: object) -> Any:
        net = NetworkSelector(**config)
        self._manager = ConnectionManager(net, **config)  # which remembers why it cannot
        client = KafkaNetClient(net, self._manager, **config)
        undo.callback(client.close)  # KafkaAdminClient leaves it open when it cannot bootstrap
        return client

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def brokers(self) -> int:
        """Return how many brokers the cluster has; raises `CannotConnect`."""
        with _vendor_errors_translated():
            return len(self._client.describe_cluster()["brokers"])

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Return what is known of each; raises `CannotConnect`."""
        with _vendor_errors_translated():
            described = {each["name"]: each for each in self._client.describe_topics(sorted(names))}
            known = [name for name, each in described.items() if not each["error_code"]]
            configs = self._configs(known)
        return {name: _topic(described.get(name), configs.get(name, {})) for name in names}

    def _configs(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        if not names:
            return {}
        resources = [
            ConfigResource(ConfigResourceType.TOPIC, each, list(_CONFIGS)) for each in names
        ]
        answer = self._client.describe_configs(resources, config_filter="all")
        configs: dict[str, dict[str, Any]] = answer.get("topic", {})
        return configs


def _topic(described: Mapping[str, Any] | None, configs: Mapping[str, Any]) -> Topic:
    if described is None:
        return Topic("UnknownTopicOrPartitionError", None, 0, 0, 0, 0, 0, False)
    partitions = described["partitions"]
    operations = described.get("authorized_operations")
    values = {name: str(each["value"]) for name, each in configs.items()}
    code = described["error_code"]
    return Topic(
        error=vendor.for_code(code).__name__ if code else "",
        operations=None if operations is None else tuple(operations),
        partitions=len(partitions),
        without_leader=sum(each["leader_id"] < 0 for each in partitions),
        in_sync=min((len(each["isr_nodes"]) for each in partitions), default=0),
        max_message_bytes=int(values.get("max.message.bytes", 0)),
        min_in_sync=int(values.get("min.insync.replicas", 0)),
        is_compacted="compact" in values.get("cleanup.policy", ""),
    )


@contextmanager
def _vendor_errors_translated() -> Iterator[None]:
    try:
        yield
    except vendor.KafkaError as error:
        raise CannotConnect(_text(error)) from error


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
