"""Checks a server and the routes' targets, read-only.

AMQP reports whether an exchange or a queue exists, but not bindings, policies or write permission.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from pika import BlockingConnection
from pika import exceptions as vendor
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.connection import Parameters

from duebridge.ports.checks import Destination, Finding, FindingSubject, failure, ok, warning
from duebridge_connectors.rabbitmq import quiet_client
from duebridge_connectors.rabbitmq.errors import root_cause
from duebridge_connectors.rabbitmq.queue_limits import Limits, read_limits
from duebridge_connectors.rabbitmq.settings import connection_parameters

CONNECTION_ERRORS = (vendor.AMQPError, AMQPConnectorException, OSError)
_UNAUTHORIZED, _NOT_FOUND = 403, 404
NOBODY: Mapping[str, str] = MappingProxyType({})
_OF_QUEUE = "not checked: policies, the permission to write"
_OF_EXCHANGE = "not checked: bindings, the permission to write"


def examine(
    place: str,
    settings: Mapping[str, object],
    destinations: Sequence[Destination],
    deadline_s: float,
    makers: Mapping[str, str] = NOBODY,
) -> list[Finding]:
    """Return findings about a server and each target; see `BrokerType.examine`.

    `makers` has, by the place of a target, the intake whose declaration would make it.
    """
    parameters = parameters_within(settings, deadline_s)
    found: list[Finding] = []
    try:
        connection = BlockingConnection(parameters)
        found.append(ok(FindingSubject.BROKER, place, "answers"))
        for destination in destinations:
            found += _examined(connection, destination, makers.get(destination.place, ""))
        with suppress(vendor.AMQPError):
            connection.close()
    except CONNECTION_ERRORS as error:
        found.append(unreachable(place, parameters, error))
    return found


def parameters_within(settings: Mapping[str, object], deadline_s: float) -> Parameters:
    """Return parameters with which connecting ends by the deadline."""
    quiet_client()
    parameters = connection_parameters(settings)
    parameters.socket_timeout = parameters.stack_timeout = deadline_s / 2
    return parameters


def unreachable(place: str, parameters: Parameters, error: Exception) -> Finding:
    """Return why a server could not be connected to, and what to do."""
    if isinstance(error, vendor.ProbableAuthenticationError):
        found = f"it refused the user or the password: {_broker_words(error)}"
        remedy = "correct them in url"
    elif isinstance(error, vendor.ProbableAccessDeniedError):
        found = f"it refused virtual host {parameters.virtual_host!r}: {_broker_words(error)}"
        remedy = "correct it in url, or change its permissions or limits (rabbitmqctl)"
    else:
        cause = root_cause(error)
        is_silent = isinstance(cause, AMQPConnectorException)  # whose text is only pika's own
        why = (
            "the server there does not speak AMQP"
            if is_silent
            else f"{type(cause).__name__}: {cause}"
        )
        found = f"no RabbitMQ answers at {parameters.host}:{parameters.port}: {why}"
        remedy = "start it, or correct url (amqp:// or amqps://, host, port)"
    return failure(FindingSubject.BROKER, place, found, remedy)


def _broker_words(error: Exception) -> str:
    """Return the reply text within pika's own: `ConnectionClosedByBroker: (530) 'NOT_ALLOWED ...'`.

    pika guesses the cause from the stage of the handshake; only the broker's text names it.
    """
    return str(error).partition(") ")[2][1:-1] or str(error)


def _examined(connection: Any, destination: Destination, maker: str) -> list[Finding]:
    exchange, routing_key = destination.target.exchange or "", destination.target.routing_key or ""
    if exchange:
        return [_exchange(connection, destination.place, exchange, maker)]
    if refusal := _refusal(connection, queue=routing_key):
        return [_refused(destination.place, f"queue {routing_key!r}", refusal, maker)]
    limits = read_limits(connection, routing_key)
    faults: list[Finding] = []
    if limits is not None:
        lost = "confirmed messages are lost"
        faults += queue_dangers(destination.place, routing_key, limits, failure, lost)
    seen = "its arguments, " if limits is None else ""
    text = f"queue {routing_key!r} exists ({_OF_QUEUE.replace('policies', f'{seen}policies')})"
    return faults or [ok(FindingSubject.ROUTE, destination.place, text)]


def _exchange(connection: Any, place: str, exchange: str, maker: str) -> Finding:
    if refusal := _refusal(connection, exchange=exchange):
        return _refused(place, f"exchange {exchange!r}", refusal, maker)
    return ok(FindingSubject.ROUTE, place, f"exchange {exchange!r} exists ({_OF_EXCHANGE})")


def _refusal(
    connection: Any, *, queue: str = "", exchange: str = ""
) -> vendor.ChannelClosedByBroker | None:
    """Declare a queue or exchange passively; return the error, or None if it exists."""
    channel = connection.channel()
    try:
        if exchange:
            channel.exchange_declare(exchange, passive=True)
        else:
            channel.queue_declare(queue, passive=True)
    except vendor.ChannelClosedByBroker as error:
        return error
    channel.close()
    return None


def _refused(place: str, name: str, refusal: vendor.ChannelClosedByBroker, maker: str) -> Finding:
    """Return what is wrong with a queue or exchange; `maker` names the intake that declares it."""
    if refusal.reply_code == _NOT_FOUND:
        remedy = "declare it, or fix the name: duebridge declares no target"
        if maker:
            remedy = f"run `duebridge intake declare {maker}`"
        return failure(FindingSubject.BROKER, place, f"{name} does not exist", remedy)
    is_closed = refusal.reply_code == _UNAUTHORIZED
    remedy = "correct this user's permissions" if is_closed else "see the broker's log"
    found = f"{name} cannot be used: {refusal.reply_code} {refusal.reply_text}"
    return failure(FindingSubject.ROUTE, place, found, remedy)


def queue_dangers(
    place: str, queue: str, limits: Limits, told: Callable[..., Finding], lost: str
) -> Iterator[Finding]:
    """Yield what a queue's arguments endanger; dropping messages is `told` as what is then lost."""
    if limit := limits.drops_oldest:
        found = f"queue {queue!r} drops its oldest messages when it is full ({limit})"
        remedy = f"declare it with x-overflow: reject-publish; else {lost}"
        yield told(FindingSubject.ROUTE, place, found, remedy)
    if not limits.is_durable:
        found = f"queue {queue!r} is not durable: a restart of the broker deletes it"
        yield warning(FindingSubject.ROUTE, place, found, "declare it durable")
