"""Reads brokers and topic descriptions from a cluster; creates and changes nothing."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

from kafka import KafkaAdminClient
from kafka import errors as vendor
from kafka.admin import ConfigResource, ConfigResourceType

from duebridge_connectors.kafka.kafka_python.network import NetworkClient

_CONFIGS = ("max.message.bytes", "min.insync.replicas", "cleanup.policy", "retention.ms")


class CannotConnect(Exception):
    """No broker answered; the message gives the cause and contains no secret."""


class Topic(NamedTuple):
    """A topic's description; `error` is empty if it exists and this user may describe it.

    `operations` lists the operations this user is authorized for, None if the broker does not
    report them; unreported limits are 0. `in_sync` is the minimum over all partitions.
    """

    error: str
    operations: tuple[str, ...] | None
    partitions: int
    without_leader: int
    in_sync: int
    max_message_bytes: int
    min_in_sync: int
    is_compacted: bool
    retention_ms: int = 0


class Admin:
    """An admin connection with the security settings of the producer."""

    def __init__(self, producer: Mapping[str, object], deadline_s: float) -> None:
        """Connect with a producer's configuration; raises `CannotConnect`."""
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
        client = NetworkClient(None, **config)
        self._manager = client._manager  # records why connecting fails
        undo.callback(client.close)  # KafkaAdminClient leaks it if the bootstrap fails
        return client

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def brokers(self) -> int:
        """Return the number of brokers; raises `CannotConnect`."""
        with _vendor_errors_translated():
            return len(self._client.describe_cluster()["brokers"])

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Return the description of each topic by name; raises `CannotConnect`."""
        with _vendor_errors_translated():
            answer = self._client.describe_topics(sorted(names))
            described = {topic["name"]: topic for topic in answer}
            known = [name for name, topic in described.items() if not topic["error_code"]]
            configs = self._configs(known)
        return {name: _topic(described.get(name), configs.get(name, {})) for name in names}

    def group_refusal(self, group: str) -> str:
        """Return why this user may not read a group's offsets, empty if it may.

        Raises `CannotConnect`.
        """
        try:
            self._client.list_group_offsets({group: None})
        except vendor.GroupAuthorizationFailedError as error:
            return type(error).__name__
        except vendor.RetriableError:  # a new cluster has no coordinator yet
            return ""
        except vendor.KafkaError as error:
            raise CannotConnect(_text(error)) from error
        return ""

    def _configs(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        if not names:
            return {}
        resources = [
            ConfigResource(ConfigResourceType.TOPIC, name, list(_CONFIGS)) for name in names
        ]
        answer = self._client.describe_configs(resources, config_filter="all")
        configs: dict[str, dict[str, Any]] = answer.get("topic", {})
        return configs


def _topic(described: Mapping[str, Any] | None, configs: Mapping[str, Any]) -> Topic:
    if described is None:
        return Topic("UnknownTopicOrPartitionError", None, 0, 0, 0, 0, 0, is_compacted=False)
    partitions = described["partitions"]
    operations = described.get("authorized_operations")
    values = {name: str(config["value"]) for name, config in configs.items()}
    code = described["error_code"]
    return Topic(
        error=vendor.for_code(code).__name__ if code else "",
        operations=None if operations is None else tuple(operations),
        partitions=len(partitions),
        without_leader=sum(partition["leader_id"] < 0 for partition in partitions),
        in_sync=min((len(partition["isr_nodes"]) for partition in partitions), default=0),
        max_message_bytes=int(values.get("max.message.bytes", 0)),
        min_in_sync=int(values.get("min.insync.replicas", 0)),
        is_compacted="compact" in values.get("cleanup.policy", ""),
        retention_ms=int(values.get("retention.ms", 0)),
    )


@contextmanager
def _vendor_errors_translated() -> Iterator[None]:
    try:
        yield
    except vendor.KafkaError as error:
        raise CannotConnect(_text(error)) from error


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
