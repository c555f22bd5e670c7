"""What an intake of a test's settings makes of an arrival."""

from struct import pack
from typing import Any

from msgspec.msgpack import Ext

from duebridge.intake.requests import RefusedMessage, Request, Rules, ScheduleRequest, read_arrival
from duebridge.ports.source import Arrival
from tests.intake.entrance import intake_config

AMQP = 1  # the code of an Ext that is an AMQP field


def field(tag: str, form: str, value: Any) -> Ext:
    return Ext(AMQP, tag.encode() + pack(form, value))


def rules(**intake: Any) -> Rules:
    config = intake_config(**intake)
    return Rules.of(config, config.intakes["in"])


def read(arrival: Arrival, **intake: Any) -> Request:
    return read_arrival(rules(**intake), arrival)


def scheduled(arrival: Arrival, **intake: Any) -> ScheduleRequest:
    request = read(arrival, **intake)
    assert isinstance(request, ScheduleRequest), request
    return request


def refused(arrival: Arrival, **intake: Any) -> RefusedMessage:
    request = read(arrival, **intake)
    assert isinstance(request, RefusedMessage), request
    return request


def of(*headers: tuple[str, Any]) -> Arrival:
    return Arrival(b"body", id="m", headers=headers)
