"""Resumes what was set aside for targets that no worker holds any more.

A worker resumes what it set aside itself. One that leaves, or forgets a target, resumes nothing,
and its orphans would wait for the end of `hold`. So each worker looks for their tags among the
retries of its shards. Whoever then tries a target that still fails, holds it, and resumes no more.
"""

from collections.abc import Container, Mapping
from contextlib import suppress

from duebridge.errors import StoreError
from duebridge.runtime import PeriodicTask
from duebridge.store.aside import aside_pages
from duebridge.store.delay_store import NO_CURSOR
from duebridge.store.workers import Workers
from duebridge.telemetry.outage import Outage
from duebridge.worker.lanes.lane import Lane
from duebridge.worker.lanes.targets import TargetHealth
from duebridge.worker.shard import ShardView
from duebridge.worker.worker import Worker

ORPHANS_EVERY_S = 10.0  # longer than it takes a worker to write what it holds
PAGES = 5  # of `CALL_ROWS` retries, a shard and look
LOOKS = 2  # of a tag that no worker names
NAMED_LOOKS = 6  # of one that some worker names, which may know nothing to try the target with


class Orphans(PeriodicTask):
    """Looks for orphans in the background.

    Of the processes that collect gauges one looks at a shard: the one that has its gauge lease.
    """

    def __init__(self, worker: Worker, workers: Workers) -> None:
        super().__init__("orphans", ORPHANS_EVERY_S)
        self._worker = worker
        self._workers = workers
        self._cursors: dict[ShardView, tuple[str, str]] = {}
        self._seen: dict[tuple[ShardView, str], int] = {}  # the looks at a tag not held here
        self._failure = Outage("orphans_not_sought", "orphans_sought")

    def step(self) -> float:
        """Look once; the loop of a shard tells of a store that is away."""
        try:
            self.run_once()
            self._failure.end()
        except StoreError:
            pass
        except Exception as error:
            self._failure.begin_fault(error)
        return ORPHANS_EVERY_S

    def run_once(self) -> None:
        """Look once; makes no call of the store for shards without a retry."""
        views = [view for view in self._worker.views if self._looks_at(view)]
        self._cursors = {view: self._cursors.get(view, NO_CURSOR) for view in views}
        found = {(view, tag): 0 for view in views for tag in self._tags(view)}
        kept = {each: looks for each, looks in self._seen.items() if each[0] in self._cursors}
        self._seen = self._not_held_here({**found, **kept})
        if self._seen:
            self._resume(self._named())

    def _looks_at(self, view: ShardView) -> bool:
        is_idle = view.poll.retry > 0 and view.is_heard and not view.resuming
        return is_idle and view.gauge_lease.is_held_or_unused

    def _tags(self, view: ShardView) -> set[str]:
        """Return the tags of some more retries of a shard."""
        found: set[str] = set()
        with suppress(StoreError):  # the loop of the shard tells of a store that is away
            most_pages = 0 if self._closed.is_set() else PAGES
            for page in aside_pages(view.store, self._cursors[view], most_pages):
                found.update(page.counts)
                self._cursors[view] = page.cursor or NO_CURSOR
        return found

    def _not_held_here(
        self, seen: Mapping[tuple[ShardView, str], int]
    ) -> dict[tuple[ShardView, str], int]:
        """Return what this process does not hold; the probes of what it holds know the shard."""
        held = {lane: self._held_by(lane) for lane in self._worker.lanes.values()}
        rest: dict[tuple[ShardView, str], int] = {}
        for (view, tag), looks in seen.items():
            lane = self._worker.lanes[view.target.broker]
            if health := held[lane].get(tag):
                lane.note_shard(health, view.shard)
            else:
                rest[view, tag] = looks + 1
        return rest

    @staticmethod
    def _held_by(lane: Lane) -> dict[str, TargetHealth]:
        with lane.lock:
            return lane.targets.held_by_tag()

    def _named(self) -> set[str]:
        """Return the tags of what workers hold by their records; none without the right to read."""
        records = self._workers.read_if_allowed() or []
        return {each.tag for record in records for each in record.held}

    def _resume(self, named: Container[str]) -> None:
        for (view, tag), looks in list(self._seen.items()):
            is_over = (
                looks >= NAMED_LOOKS and self._may_try(view) if tag in named else looks >= LOOKS
            )
            if is_over:
                del self._seen[view, tag]
                self._worker.resume(view, tag)

    def _may_try(self, view: ShardView) -> bool:
        """Whether this process would find out that a target still fails, and then resume no more.

        Else it would give what another holds back to that again and again.
        """
        return self._worker.lanes[view.target.broker].is_open
