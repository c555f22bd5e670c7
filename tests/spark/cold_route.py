"""The route `cold` of a world: its store and its files, its jobs, and a demote that is killed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from duebridge.config.models import HOUR_MS
from duebridge.store.delay_store import DelayStore
from duebridge.store.registry import Registry
from duebridge.store.wire.replies import OccupyReply
from duebridge_connectors.spark.cold import removal
from duebridge_connectors.spark.cold.commit_log import REMOVED, ColdLog, Commit
from duebridge_connectors.spark.cold.tier import Tier, open_tier, read_cold
from duebridge_connectors.spark.jobs.demote import DemoteSummary, run_demote
from duebridge_connectors.spark.jobs.hydrate import HydrateSummary, run_hydrate
from tests.spark.world import LATER_MS, SHARDS, World


class Killed(Exception):
    """Stands for the end of the driver."""


def die(*_: Any, **__: Any) -> Any:
    raise Killed


def _die_at_the_end(log: ColdLog, entry: Commit, *check: Any) -> None:
    if entry.kind == REMOVED:
        raise Killed
    _commit(log, entry, *check)


_commit = ColdLog.commit
STEPS = {
    "before the commit": (ColdLog, "commit", die),
    "before removal": (removal, "_finish", die),
    "before the end": (ColdLog, "commit", _die_at_the_end),
}


def listed(world: World, *words: str) -> list[str]:
    """The ids that `ls --state cold` prints."""
    done = world.command("ls", "cold", "--state", "cold", "--output", "json", *words)
    assert done.code == 0, done.err
    return [each["id"] for each in done.json_lines()]


@contextmanager
def without_patience() -> Iterator[None]:
    """Nobody waits for the end of another's lease."""
    occupy = DelayStore.occupy

    def over(store: DelayStore, *given: Any) -> OccupyReply:
        return occupy(store, *given)._replace(until_ms=0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DelayStore, "occupy", over)
        yield


class ColdRoute:
    """Runs demote and hydrate, as the configuration has them or with another horizon."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch, route: str = "cold") -> None:
        self.world, self.spark = world, world.spark
        self._patch = patch
        self.to = {"config": world.config, "route": route}

    def reach(self, hours: int = 24) -> None:
        """Let the horizon reach so far that what is due in a month is to come back."""
        self._patch.setattr(Tier, "boundary_ms", lambda _: LATER_MS + hours * HOUR_MS)

    @property
    def tier(self) -> Tier:
        return open_tier(**self.to)

    def schedule(self, *ids: str, **given: Any) -> None:
        """Store envelopes, due in a month, an hour apart."""
        for number, name in enumerate(ids):
            self.world.schedule("cold", name, at=LATER_MS + number * HOUR_MS, **given)

    def demote(self) -> DemoteSummary:
        return run_demote(self.spark, **self.to)

    def demote_until(self, step: str) -> None:
        """Run a demote whose driver is killed at a step."""
        with pytest.MonkeyPatch.context() as killing:
            killing.setattr(*STEPS[step])
            with pytest.raises(Killed):
                self.demote()

    def begin_anew(self, shards: int) -> None:
        """Purge the route, which has another number of shards from now on."""
        world, now = self.world, SHARDS["cold"]
        Registry(world.connection, world.namespace).remove_route("cold", now)
        config = Path(world.config)
        text = config.read_text().replace(f"    shards: {now}\n", f"    shards: {shards}\n")
        config.write_text(text)
        self._patch.setitem(SHARDS, "cold", shards)

    def demoted(self, *ids: str) -> None:
        self.schedule(*ids)
        assert self.demote().removed == len(ids)

    def hydrate(self, **options: Any) -> HydrateSummary:
        return run_hydrate(self.spark, **self.to, **options)

    def warm(self) -> set[str]:
        """The ids in the store."""
        return self.world.ids("cold")

    def rows(self, files: Sequence[str] | None = None) -> DataFrame:
        """The rows of these files, or of all that count; void ones among them."""
        return read_cold(self.spark, self.tier, files or self.tier.log.state().files)

    def ids(self) -> list[str]:
        return sorted(row.id for row in self.rows().select("id").collect())

    def marks(self) -> set[str]:
        with self.tier.notes() as shards:
            return {mark.name for shard in shards for mark in shard.marks()}
