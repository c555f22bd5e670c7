"""Declares what an intake needs: exchanges for programs of the delayed-message plugin, and queues.

Idempotent, and changes nothing that is there: RabbitMQ refuses to, and says what differs.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import Any, Final

from pika import BlockingConnection
from pika import exceptions as vendor

from duebridge.errors import ConfigError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import SourcePlan
from duebridge_connectors.rabbitmq import quiet_client
from duebridge_connectors.rabbitmq.examine import CONNECTION_ERRORS, unreachable
from duebridge_connectors.rabbitmq.queue_limits import DELIVERIES, MOST_DELIVERIES, QUORUM, TYPE
from duebridge_connectors.rabbitmq.settings import connection_parameters
from duebridge_connectors.rabbitmq.source.models import (
    due_exchange,
    expired_target,
    own_dead_letter_queue,
)
from duebridge_connectors.rabbitmq.source.refusals import NOT_FOUND, REFUSED

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
# A void argument matches a header of that name, whatever its value (`any` would skip x- headers).
MATCH: Final[Mapping[str, str | None]] = {
    "x-match": "any-with-x",
    "x-delay": None,
    "x-deliver-at": None,
    "x-cancel": None,
}


def declare_source(settings: Mapping[str, object], plan: SourcePlan) -> list[str]:
    """Declare it all, and return a line for each thing; see `BrokerType.declare_source`."""
    quiet_client()
    parameters = connection_parameters(settings)
    try:
        with closing(BlockingConnection(parameters)) as connection:
            return list(_declared(connection, plan))
    except CONNECTION_ERRORS as error:
        told = unreachable("", parameters, error)
        raise BrokerUnavailable(f"{told.found}; {told.remedy}") from error


def exchange_arguments(exchange: str) -> dict[str, str]:
    """Return the arguments of the exchange that programs publish to."""
    return {"alternate-exchange": due_exchange(exchange)}


def _declared(connection: Any, plan: SourcePlan) -> Iterator[str]:
    queue, letters = str(plan.source["queue"]), own_dead_letter_queue(plan)
    if plan.declare is not None:
        yield from _exchanges(connection, plan.declare)
    yield _queue(connection, queue, _expiry(plan))
    if plan.declare is not None:
        exchange = str(plan.declare["exchange"])
        what = f"binding of queue {queue!r} to exchange {exchange!r}: messages with x-delay,"
        _done(
            connection,
            what,
            lambda channel: channel.queue_bind(queue, exchange, "", arguments=dict(MATCH)),
        )
        yield f"{what} x-deliver-at or x-cancel"
    if letters and letters != queue:
        yield _queue(connection, letters)


def _expiry(plan: SourcePlan) -> dict[str, str]:
    """Return the arguments that make dead letters of messages that expire before they are read."""
    target = expired_target(plan)
    if target is None:
        return {}
    exchange, routing_key = target.exchange or "", target.routing_key or ""
    return {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": routing_key}


def _exchanges(connection: Any, declare: Mapping[str, Any]) -> Iterator[str]:
    exchange, kind = str(declare["exchange"]), str(declare.get("type", "direct"))
    due = due_exchange(exchange)
    what = f"exchange {due!r}"
    _done(connection, what, lambda channel: channel.exchange_declare(due, kind, durable=True))
    yield f"{what}, {kind}: what is due"
    what = f"exchange {exchange!r}"
    arguments = exchange_arguments(exchange)
    _done(
        connection,
        what,
        lambda channel: channel.exchange_declare(
            exchange, "headers", durable=True, arguments=arguments
        ),
    )
    yield f"{what}, headers: what is published; without a delay it goes on to {due!r}"


def _queue(connection: Any, queue: str, more: Mapping[str, str] = NOTHING) -> str:
    what = f"queue {queue!r}"
    channel = connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
    except vendor.ChannelClosedByBroker as error:
        if error.reply_code != NOT_FOUND:
            raise _refused(what, error) from error
    else:
        channel.close()
        return f"{what}: was there"
    quorum = {TYPE: QUORUM, DELIVERIES: MOST_DELIVERIES, **more}
    _done(connection, what, lambda each: each.queue_declare(queue, durable=True, arguments=quorum))
    return f"{what}: made, a quorum queue"


def _done(connection: Any, what: str, declare: Callable[[Any], object]) -> None:
    """Do it on a channel of its own, which a refusal closes."""
    channel = connection.channel()
    try:
        declare(channel)
    except vendor.ChannelClosedByBroker as error:
        raise _refused(what, error) from error
    channel.close()


def _refused(what: str, error: vendor.ChannelClosedByBroker) -> ConfigError:
    said = f"({error.reply_code} {error.reply_text})"
    if error.reply_code == REFUSED:
        remedy = "do it as a user who may (`duebridge acl` prints the command)"
        return ConfigError(f"{what}: this user may not declare it: {remedy} {said}")
    remedy = "delete it, or choose another name"
    return ConfigError(f"{what}: it is there and differs: {remedy} {said}")
