"""Makes arrivals out of messages as they came."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from msgspec.msgpack import Ext

from duebridge.amqp_fields import field_value
from duebridge.envelope import HeaderValue, Target
from duebridge.ports.source import Arrival, LogPosition, SourcePlan
from duebridge_connectors.rabbitmq.content import Headers, decode, text_of
from duebridge_connectors.rabbitmq.source.inbox import RawMessage
from duebridge_connectors.rabbitmq.source.models import due_exchange

DEATHS, ORIGIN, OFFSET = "x-death", "x-origin", "x-stream-offset"
# What a queue adds at each delivery: a redelivered message has to be the same one.
COUNTS = ("x-delivery-count", "x-acquired-count")


class Reader:
    """Reads the messages of one consumer.

    `user` is the one that it has connected as, `log` a stream's, empty for another queue.
    """

    def __init__(self, plan: SourcePlan, user: str | None, log: str) -> None:
        self._user = user
        self._log = log
        self._queue = str(plan.source["queue"])
        self._onward = None if plan.declare is None else _targets(plan.broker, plan.declare)

    def arrival(self, raw: RawMessage, handle: object) -> Arrival:
        """Return the arrival of a message."""
        content = decode(raw.header)
        headers, fields = content
        place = None
        if self._log and OFFSET in headers:
            place = LogPosition(self._log, 0, offset_of(headers))
            del headers[OFFSET]
        origin = _origin(headers, self._queue)
        for name in COUNTS:
            headers.pop(name, None)
        self._keep_as_headers(headers, fields)
        message_id = str(fields.pop("message_id", ""))
        return Arrival(
            raw.body,
            message_id if place is None else f"{place.log}:{place.offset}",
            message_id="" if place is None else message_id,
            headers=tuple(headers.items()),
            properties=content.properties(),
            place=place,
            onward=None if self._onward is None else self._onward(raw.routing_key),
            origin=origin,
            sent_at_ms=int(fields.get("timestamp", 0)) * 1000,
            is_redelivered=raw.is_redelivered,
            handle=handle,
        )

    def _keep_as_headers(self, headers: Headers, fields: dict[str, str | int]) -> None:
        """Turn a foreign user_id, which the broker refuses from us, and cluster_id into headers."""
        if "user_id" in fields and fields["user_id"] != self._user:
            headers.setdefault("x-user-id", fields.pop("user_id"))
        if "cluster_id" in fields:
            headers.setdefault("x-cluster-id", fields.pop("cluster_id"))


def stream_log(plan: SourcePlan) -> str:
    """Return the name of a stream among the logs of places, in its first life."""
    return f"{plan.broker}:{plan.source['queue']}"


def offset_of(headers: Headers) -> int:
    """Return the offset of a stream's message."""
    return int(_plain(headers[OFFSET]))


def _targets(broker: str, declare: Mapping[str, Any]) -> Callable[[bytes], Target]:
    exchange = due_exchange(declare["exchange"])

    @lru_cache(maxsize=4096)
    def target(routing_key: bytes) -> Target:
        return Target(broker, exchange=exchange, routing_key=text_of(routing_key))

    return target


def _origin(headers: Headers, own: str) -> str:
    """Return the queue that the message came from; the broker's record of that goes.

    One that expired in our own queue, and was sent to it again, came from the one before.
    """
    deaths = headers.pop(DEATHS, None)
    given = next((headers[name] for name in headers if name.lower() == ORIGIN), None)
    if isinstance(given, str | bytes):
        return text_of(given) if isinstance(given, bytes) else given
    try:
        return next((str(each["queue"]) for each in _plain(deaths) if each["queue"] != own), "")
    except (ValueError, TypeError, LookupError):
        return ""


def _plain(value: HeaderValue) -> Any:
    return field_value(value) if isinstance(value, Ext) else value
