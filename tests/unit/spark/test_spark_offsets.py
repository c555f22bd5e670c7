"""Where a batch of the stream of the journal ends."""

from pyspark.sql.streaming.datasource import ReadMaxRows

from duebridge.store.keys import Shard
from duebridge.store.numbering import Numbering
from duebridge_connectors.spark.source.journal.offset import (
    JournalEnds,
    Offset,
    ShardOffset,
    planned,
)

QUIET, CALM, BUSY = SHARDS = [Shard("n", "r", number) for number in range(3)]


def test_limit_below_the_number_of_shards_leaves_none_unread() -> None:
    offset: Offset = {}
    for trigger in range(1, 1001):
        last = {QUIET: min(trigger, 200), CALM: min(trigger, 200), BUSY: 500}
        ends = {each: JournalEnds(1, last[each], Numbering(), "e") for each in SHARDS}
        offset = planned(offset, ends, ReadMaxRows(2))
        read = {each: ShardOffset.of(offset, each).until for each in SHARDS}
        assert read[BUSY] >= min(trigger // 2, 500), "it goes on beside those that have little"
    assert read == last


def test_limit_below_the_number_of_queues_that_never_drain_reads_each_in_turn() -> None:
    offset: Offset = {}
    for trigger in range(1, 31):
        last = {QUIET: 10 * trigger, CALM: 20 * trigger, BUSY: 500 * trigger}
        ends = {each: JournalEnds(1, last[each], Numbering(), "e") for each in SHARDS}
        offset = planned(offset, ends, ReadMaxRows(2))
    assert {ShardOffset.of(offset, each).until for each in SHARDS} == {20}
