"""Reads the headers of records where librdkafka's binding may fail: for names that are no UTF-8."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Message

SAID = "headers: expected names in UTF-8; librdkafka reads none"


class HeadersRead(NamedTuple):
    """The headers of each record, and why those of some are unreadable, by their number."""

    headers: list[Any]
    unreadable: Mapping[int, str]


def read_headers(records: Sequence[Any]) -> HeadersRead:
    """Ask each record for its headers, once.

    By `map`, which checks each call: one in a loop of ours, once Python 3.11 has specialised it,
    lets the binding's error pass and returns a list with holes, as would a second call.
    """
    headers: list[Any] = []
    unreadable: dict[int, str] = {}
    calls = map(Message.headers, records)
    while True:
        try:
            headers.extend(calls)
        except Exception as error:
            unreadable[len(headers)] = f"{SAID} ({type(error).__name__}: {error})"
            headers.append(None)
        else:
            return HeadersRead(headers, unreadable)
