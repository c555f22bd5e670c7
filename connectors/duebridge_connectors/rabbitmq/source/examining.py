"""Checks an intake's queue and its declaration, read-only.

Asked to read from an offset, a queue that is no stream refuses, but only a user who may read it:
so the type and the right are known, and no message is taken. Bindings and policies are not told.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

from pika import BlockingConnection
from pika import exceptions as vendor

from duebridge.ports.checks import Finding, FindingSubject, failure, ok, warning
from duebridge.ports.source import SourcePlan
from duebridge_connectors.rabbitmq.examine import (
    CONNECTION_ERRORS,
    parameters_within,
    queue_dangers,
    unreachable,
)
from duebridge_connectors.rabbitmq.queue_limits import (
    DELIVERIES,
    MOST_DELIVERIES,
    read_delivery_limit,
    read_limits,
)
from duebridge_connectors.rabbitmq.source.declaring import exchange_arguments
from duebridge_connectors.rabbitmq.source.models import do_letters_come_back, due_exchange
from duebridge_connectors.rabbitmq.source.refusals import (
    NOT_FOUND,
    PRECONDITION,
    refusal,
    says_no_stream,
)

ENOUGH_DELIVERIES: Final = 1_000_000
LIMITLESS_VERSIONS: Final = ("3",)  # where a quorum queue has no limit by default


def examine_source(
    place: str, settings: Mapping[str, object], plan: SourcePlan, deadline_s: float
) -> list[Finding]:
    """Return findings about the queue and the declaration; see `BrokerType.examine_source`."""
    parameters = parameters_within(settings, deadline_s)
    found: list[Finding] = []
    try:
        connection = BlockingConnection(parameters)
        found += _queue(connection, place, plan)
        if plan.declare is not None:
            found += _declaration(connection, place, plan)
        with suppress(vendor.AMQPError):
            connection.close()
    except CONNECTION_ERRORS as error:
        found.append(unreachable(place, parameters, error))
    return found + list(_cycles(place, plan))


def _queue(connection: Any, place: str, plan: SourcePlan) -> Iterator[Finding]:
    channel, queue = connection.channel(), str(plan.source["queue"])
    try:
        told = channel.queue_declare(queue, passive=True).method
        kind = _kind(channel, queue)
    except vendor.ChannelClosedByBroker as error:
        wrong = refusal(error, queue)
        remedy = f"declare it (`duebridge intake declare {plan.intake}`), or correct source.queue"
        if error.reply_code != NOT_FOUND:
            remedy = "grant the right (`duebridge acl`), or see the broker's log"
        yield failure(FindingSubject.BROKER, place, _short(wrong), remedy)
        return
    limits = read_limits(connection, queue)
    if limits is not None:
        yield from queue_dangers(place, queue, limits, warning, "what waits here may be lost")
        version = str(connection._impl.server_properties.get("version", ""))
        yield from delivery_dangers(place, queue, read_delivery_limit(connection, queue), version)
    unseen = "its arguments, policies" if limits is None else "policies"
    text = f"{kind} {queue!r} can be read: {told.message_count} messages ready"
    text = f"{text}, {told.consumer_count} consumers (not checked: {unseen}, bindings)"
    yield ok(FindingSubject.ROUTE, place, text)


def _short(error: Exception) -> str:
    return str(error).partition(": ")[0]


def _kind(channel: Any, queue: str) -> Literal["queue", "stream"]:
    """Return `queue` or `stream`; raises what the broker says to who may not read it."""
    channel.basic_qos(prefetch_count=1)
    try:
        tag = channel.basic_consume(queue, lambda *_: None, arguments={"x-stream-offset": "next"})
    except vendor.ChannelClosedByBroker as error:
        if says_no_stream(error):
            return "queue"
        raise
    channel.basic_cancel(tag)
    return "stream"


def delivery_dangers(place: str, queue: str, limit: str | None, version: str) -> Iterator[Finding]:
    """Warn of a quorum queue that drops what the intake has had in hand some times.

    `limit` is its own, empty for none: then a policy's counts, or from RabbitMQ 4 on 20.
    """
    if limit and 0 <= int(limit) < ENOUGH_DELIVERIES:
        found = f"queue {queue!r} drops a message after {limit} deliveries ({DELIVERIES})"
        remedy = f"declare it anew with {DELIVERIES}: {MOST_DELIVERIES}, which no policy can raise"
        yield warning(FindingSubject.ROUTE, place, found, remedy)
    if limit == "" and version.partition(".")[0] not in LIMITLESS_VERSIONS:
        found = f"queue {queue!r} drops a message after 20 deliveries, unless a policy says more"
        remedy = f"set a policy with delivery-limit: {MOST_DELIVERIES} (whether there is one"
        yield warning(FindingSubject.ROUTE, place, found, f"{remedy} is not checked)")


def _declaration(connection: Any, place: str, plan: SourcePlan) -> Iterator[Finding]:
    declare = plan.declare or {}
    exchange = str(declare["exchange"])
    due, kind = due_exchange(exchange), str(declare.get("type", "direct"))
    remedy = f"run `duebridge intake declare {plan.intake}`"
    yield _exchange(connection, place, remedy, due, kind, {})
    yield _exchange(connection, place, remedy, exchange, "headers", exchange_arguments(exchange))


def _exchange(
    connection: Any, place: str, remedy: str, name: str, kind: str, arguments: dict[str, str]
) -> Finding:
    """Check that the exchange exists and has the declared type; changes nothing."""
    try:
        connection.channel().exchange_declare(name, passive=True)
        channel = connection.channel()
        channel.exchange_declare(name, kind, durable=True, arguments=arguments)
        channel.close()
    except vendor.ChannelClosedByBroker as error:
        if error.reply_code == NOT_FOUND:
            return failure(
                FindingSubject.BROKER, place, f"exchange {name!r} does not exist", remedy
            )
        if error.reply_code == PRECONDITION:
            found = f"exchange {name!r} differs from what the intake declares: {error.reply_text}"
            return failure(FindingSubject.BROKER, place, found, f"delete it and {remedy}")
        return ok(
            FindingSubject.ROUTE,
            place,
            f"exchange {name!r} exists (not checked: its type, bindings)",
        )
    return ok(
        FindingSubject.ROUTE, place, f"exchange {name!r} exists, {kind} (not checked: bindings)"
    )


def _cycles(place: str, plan: SourcePlan) -> Iterator[Finding]:
    if do_letters_come_back(plan):
        found = "the intake's dead letters come back to it"
        yield warning(
            FindingSubject.ROUTE, place, found, "name another queue in the intake's dead_letter"
        )
