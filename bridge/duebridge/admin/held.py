"""Held targets and stopped lanes, from the workers' records."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from duebridge.store.workers import HeldTarget, WorkerRecord

STARTING_MS = 2_000  # a worker that starts needs a moment to reach its brokers


class HeldStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """A target that holds envelopes of a route since its failure at `since_ms`.

    `error` is the latest, in the broker's own words. `waiting` counts the route's envelopes that
    are due, on a route with `allow_targets` those set aside for this target, or the route's dead
    letters (`dead_letter`: it is the dead-letter target). `workers` hold it.
    `at_fault`: the target is missing or forbids, so that the clock of `hold` runs.
    """

    target: str
    error: str
    since_ms: int
    waiting: int
    workers: int
    at_fault: bool = False
    dead_letter: bool = False


class StoppedLane(msgspec.Struct, frozen=True):
    """A broker that a worker does not reach, and why."""

    broker: str
    host: str
    pid: int
    error: str


def held_of(
    records: Iterable[WorkerRecord],
    route: str,
    *,
    waiting: int,
    dead: int,
    aside: Mapping[str, int] | None = None,
) -> list[HeldStats]:
    """Return the held targets of a route, longest first; several workers may hold the same.

    `aside` counts what waits for each of several targets, by tag; without it all of `waiting` does.
    """
    held = [each for record in records for each in record.held]

    def waits(each: HeldTarget) -> int:
        return waiting if aside is None or not each.tag else aside.get(each.tag, 0)

    live = _merged([each for each in held if route in each.routes], waits)
    letters = [each for each in held if route in each.letters_of]
    dead_letters = _merged(letters, lambda _: dead, dead_letter=True)
    return sorted([*live, *dead_letters], key=lambda each: each.since_ms)


def _merged(
    held: Sequence[HeldTarget], waits: Callable[[HeldTarget], int], *, dead_letter: bool = False
) -> list[HeldStats]:
    by_target: dict[str, list[HeldTarget]] = {}
    for each in held:
        by_target.setdefault(each.target, []).append(each)
    return [
        HeldStats(
            target=target,
            error=some[-1].error,
            since_ms=min(each.since_ms for each in some),
            waiting=waits(some[-1]),
            workers=len(some),
            at_fault=any(each.is_at_fault for each in some),
            dead_letter=dead_letter,
        )
        for target, some in by_target.items()
    ]


def stopped_lanes(records: Iterable[WorkerRecord]) -> list[StoppedLane]:
    """Return the brokers that workers do not reach, beyond the moment after their start."""
    return [
        StoppedLane(lane.broker, record.host, record.pid, lane.error)
        for record in records
        for lane in record.lanes
        if not lane.is_open and has_started(record)
    ]


def has_started(record: WorkerRecord) -> bool:
    """Whether a worker has had its moment to reach its brokers."""
    return record.at_ms - record.started_at_ms >= STARTING_MS


def count_serving(records: Iterable[WorkerRecord], route: str) -> int:
    """Count the workers that serve a route, by their records."""
    return sum(route in record.routes for record in records)
