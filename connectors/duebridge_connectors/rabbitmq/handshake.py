"""Tries what a connection begins with: the options of its socket, and what the handshake says.

pika takes these values unseen, and fails with them at each connect.
"""

import struct
from collections.abc import Iterator, Mapping
from socket import socket

from pika import spec
from pika.amqp_object import Method
from pika.connection import Parameters
from pika.exceptions import ShortStringTooLong, UnsupportedAMQPFieldException
from pika.tcp_socket_opts import set_sock_opts

from duebridge.errors import ConfigError, did_you_mean
from duebridge.ports.settings import MistakeCollector

# pika leaves out those that a machine lacks: the one that checks need not be the worker's.
TCP_OPTIONS = ("TCP_KEEPCNT", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_USER_TIMEOUT")
_SHORT = "text of at most 255 bytes"
_TABLE = "names of at most 255 bytes, each with text, a whole number, true or false"
_REFUSALS = (
    AssertionError,
    ShortStringTooLong,
    TypeError,
    UnsupportedAMQPFieldException,
    ValueError,
    struct.error,
)


def try_values(parameters: Parameters) -> None:
    """Raise `ConfigError`, with a line for each, for values with which no connection can begin.

    Numbers among `tcp_options` may be text before, and are none after.
    """
    mistakes = MistakeCollector()
    for complaint, method in _handshake(parameters):
        with mistakes.collecting():
            _check_encodes(method, f"{complaint}; got another value")
    with mistakes.collecting():
        parameters.tcp_options = _tcp_options(parameters.tcp_options or {}) or None
    mistakes.raise_any()


def _handshake(parameters: Parameters) -> Iterator[tuple[str, Method]]:
    """Yield what is expected of each value, and a method that has it."""
    start, properties = spec.Connection.StartOk, parameters.client_properties or {}
    yield f"options.client_properties: expected {_TABLE}", start(properties, response=b"")
    yield f"options.locale: expected {_SHORT}", start({}, response=b"", locale=parameters.locale)
    heartbeat = spec.Connection.TuneOk(heartbeat=parameters.heartbeat)
    yield "options.heartbeat: expected at most 65535 seconds", heartbeat
    yield f"url: expected a vhost that is {_SHORT}", spec.Connection.Open(parameters.virtual_host)


def _check_encodes(method: Method, complaint: str) -> None:
    try:
        method.encode()
    except _REFUSALS:
        raise ConfigError(complaint) from None  # the value may be a resolved secret


def _tcp_options(given: Mapping[str, object]) -> dict[str, int]:
    """Return the options of a socket. Raises `ConfigError` for what this machine refuses."""
    found: dict[str, int] = {}
    mistakes = MistakeCollector()
    with socket() as unconnected:
        for name, value in given.items():
            with mistakes.collecting():
                found[name] = _tried(unconnected, name, value)
    mistakes.raise_any()
    return found


def _tried(unconnected: socket, name: str, value: object) -> int:
    place = f"options.tcp_options.{name}"
    if name not in TCP_OPTIONS:
        raise ConfigError(f"{place}: unknown option{did_you_mean(name, TCP_OPTIONS)}")
    try:
        number = int(str(value))  # a number from ${VARIABLE} is text
        set_sock_opts({name: number}, unconnected)
    except (OSError, OverflowError, TypeError, ValueError):
        raise ConfigError(f"{place}: expected a number that a socket takes; got another") from None
    return number
