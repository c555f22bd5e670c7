"""How far the journal's table is, as the table tells a verdict and the store its workers."""

import json
from typing import Any

import pytest

from duebridge.store.journal import Journal
from duebridge_connectors.spark.source.options import journal_options
from duebridge_connectors.spark.source.planning import given_store
from duebridge_connectors.spark.table.journal_progress import JournalProgress
from duebridge_connectors.spark.table.journal_table import JournalTable
from tests.spark.world import World


class Progress:
    """A query that has read the journal of a route up to somewhere, as its checkpoint says."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.table = JournalTable(str(world.home / "journal"))

    def of(self, *routes: str) -> JournalProgress:
        options = journal_options({"config": self.world.config, "stream": "journal"})
        return JournalProgress(given_store(options), routes, self.table)

    def read(self, offsets: dict[str, Any]) -> None:
        place = self.world.home / "journal" / "_checkpoint" / "offsets"
        place.mkdir(parents=True, exist_ok=True)
        (place / "0").write_text(f"v1\n{{}}\n{json.dumps(offsets)}")

    def times(self, route: str) -> list[int]:
        shard = self.world.store(route).shard
        return [each.at_ms for each in Journal(self.world.connection, shard).read(0, 100)]


@pytest.fixture
def progress(world: World) -> Progress:
    return Progress(world)


def test_complete_until_is_when_the_oldest_missing_entry_was_journalled(
    world: World, progress: Progress
) -> None:
    world.accept("plain", "a", "b", "c")
    progress.read({"plain/0": [1, 2]})
    assert progress.of("plain").complete_until_ms(0) == progress.times("plain")[2]
    progress.read({"plain/0": [1, 3]})
    assert progress.of("plain").complete_until_ms(0) >= progress.times("plain")[2]


def test_complete_until_is_unknown_for_a_cut_entry(world: World, progress: Progress) -> None:
    world.accept("plain", "a", "b", "c")
    progress.read({"plain/0": [1, 1]})
    world.cut("plain", 2)
    assert progress.of("plain").complete_until_ms(0) == 0
    progress.read({"plain/0": [1, 3]})
    assert progress.of().complete_until_ms(0) > 0


def test_complete_until_is_that_of_the_route_furthest_behind_whichever_are_read(
    world: World, progress: Progress
) -> None:
    world.accept("plain", "a", "b")
    world.accept("open", "c")
    progress.read({"plain/0": [1, 1], "open/0": [1, 1]})
    assert progress.of("open").complete_until_ms(0) == progress.times("plain")[1]
    progress.read({"plain/0": [1, 2]})
    assert progress.of().complete_until_ms(0) == progress.times("open")[0]
    assert progress.of("plain").complete_until_ms(0) > progress.times("open")[0]


def test_note_tells_the_store_how_far_the_table_is(world: World, progress: Progress) -> None:
    world.accept("plain", "a", "b", "c")
    assert world.store("plain").stats().journal_lag is None
    progress.read({"plain/0": [1, 2]})
    progress.of("plain").note(0)
    assert world.store("plain").stats().journal_lag == 1
