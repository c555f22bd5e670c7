"""Rates of accepted and delivered envelopes, from the newest entries of the journals.

Of each shard at most `MOST_BYTES` of the journal are read: where that covers less than was asked
for, the rates are those of the shorter time.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from duebridge.admin.operator import Operator
    from duebridge.store.journal import EventKind, Journal

MOST_BYTES = 2 * 1024 * 1024  # of a journal, a call
ACCEPTED: "tuple[EventKind, ...]" = ("accepted", "replaced")
DELIVERED: "tuple[EventKind, ...]" = ("delivered",)


class RouteRates(msgspec.Struct, frozen=True):
    """Envelopes a second of a route; `accepted_per_s` counts the replaced ones too."""

    route: str
    accepted_per_s: float
    delivered_per_s: float


class Tally(NamedTuple):
    """The number of envelopes in one entry of a journal."""

    kind: "EventKind"
    at_ms: int
    envelopes: int


class RecentTallies(NamedTuple):
    """The tallies of a journal since an instant, newest first, in full."""

    since_ms: int
    tallies: Sequence[Tally]


def rates(operator: "Operator", routes: Sequence[str], over_s: int = 60) -> list[RouteRates]:
    """Return the rates of these routes over the last seconds.

    Raises `ConfigError` for an unknown route, and `StoreError`.
    """
    now_ms = operator.now_ms(*routes)
    since_ms = now_ms - 1000 * over_s
    return [
        _rates_of(route, [recent(each, since_ms) for each in operator.journals(route)], now_ms)
        for route in routes
    ]


def recent(journal: "Journal", since_ms: int, most_bytes: int = MOST_BYTES) -> RecentTallies:
    """Return the tallies since an instant, or since a later one where that is too many bytes."""
    tallies: list[Tally] = []
    size = 0
    for head in journal.newest():
        if head.at_ms < since_ms:
            break
        if size > most_bytes:
            return RecentTallies(
                head.at_ms + 1, [each for each in tallies if each.at_ms > head.at_ms]
            )
        size += head.size
        tallies.append(Tally(head.kind, head.at_ms, head.items))
    return RecentTallies(since_ms, tallies)


def _rates_of(route: str, found: Sequence[RecentTallies], now_ms: int) -> RouteRates:
    def per_s(kinds: "Iterable[EventKind]") -> float:
        return sum(_count(each, kinds) / _seconds(each, now_ms) for each in found)

    return RouteRates(route, per_s(ACCEPTED), per_s(DELIVERED))


def _count(found: RecentTallies, kinds: "Iterable[EventKind]") -> int:
    counts: Counter[EventKind] = Counter()
    for tally in found.tallies:
        counts[tally.kind] += tally.envelopes
    return sum(counts[kind] for kind in kinds)


def _seconds(found: RecentTallies, now_ms: int) -> float:
    return max(1, now_ms - found.since_ms) / 1000
