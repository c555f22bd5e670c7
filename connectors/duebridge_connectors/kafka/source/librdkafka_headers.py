"""Reads the headers of records where librdkafka's binding may fail: for names that are no UTF-8."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Message
from msgspec.structs import replace

from duebridge.ports.source import Arrival

SAID = "headers: expected names in UTF-8; librdkafka reads none"


class HeadersRead(NamedTuple):
    """The headers of each record, and what the binding said of others, by partition and offset."""

    headers: list[Any]
    damaged: Mapping[tuple[int, int], str]


def read_headers(records: Sequence[Any]) -> HeadersRead:
    """Ask each record for its headers, once.

    By `map`, which checks each call: one in a loop of ours, once Python 3.11 has specialised it,
    lets the binding's error pass and returns a list with holes, as would a second call.
    """
    headers: list[Any] = []
    damaged: dict[tuple[int, int], str] = {}
    calls = map(Message.headers, records)
    while True:
        try:
            headers.extend(calls)
        except Exception as error:
            record = records[len(headers)]
            damaged[record.partition(), record.offset()] = f"{type(error).__name__}: {error}"
            headers.append(None)
        else:
            return HeadersRead(headers, damaged)


def marked(arrivals: Sequence[Arrival], damaged: Mapping[tuple[int, int], str]) -> list[Arrival]:
    """Return the arrivals; those of damaged records are unreadable."""
    said = [damaged.get((each.handle[0].part, each.handle[2])) for each in arrivals]
    pairs = zip(arrivals, said, strict=True)
    return [replace(each, unreadable=f"{SAID} ({why})") if why else each for each, why in pairs]
