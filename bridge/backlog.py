"""What is due, and what soon will be: what to scale on before the burst, as `/due` answers it.

From each shard's latest look (`bridge.station`), so that asking costs the store nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from bridge.station import Station
from bridge.store.poll import NONE
from bridge.store.replies import Stats

Look: TypeAlias = tuple[Station, Stats]


class Backlog(msgspec.Struct, frozen=True):
    """Envelopes that wait to be delivered, now or by then, and are under nobody's lease."""

    due_now: int
    oldest_due_age_s: float
    due_within_s: dict[str, int]


class Due(msgspec.Struct, frozen=True):
    """Each route's backlog, and that of all of them together."""

    routes: dict[str, Backlog]
    totals: Backlog


def due(stations: Iterable[Station]) -> Due:
    """Return the backlogs of what was looked at."""
    by_route: defaultdict[str, list[Look]] = defaultdict(list)
    for station in stations:
        if station.stats is not None:
            by_route[station.route.name].append((station, station.stats))
    everything = [look for looks in by_route.values() for look in looks]
    return Due({name: _sum(looks) for name, looks in by_route.items()}, _sum(everything))


def _sum(looks: Sequence[Look]) -> Backlog:
    found = [stats for _, stats in looks]
    return Backlog(
        due_now=sum(stats.due for stats in found),
        oldest_due_age_s=max((oldest_due_age_ms(*look) for look in looks), default=0) / 1000,
        due_within_s={
            "60": sum(stats.due_within_60s for stats in found),
            "300": sum(stats.due_within_300s for stats in found),
        },
    )


def oldest_due_age_ms(station: Station, stats: Stats) -> int:
    """Return for how long the oldest that waits has been due; it rises while the store is away."""
    if station.is_heard:
        return stats.oldest_due_age_ms
    firsts = (stats.oldest_due_at_ms, station.poll.first_pending_ms, station.poll.first_retry_ms)
    oldest_ms = min((each for each in firsts if each != NONE), default=station.now_ms())
    return max(0, station.now_ms() - oldest_ms)
