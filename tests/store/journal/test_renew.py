"""A failover or a restart that lost writes: no number is ever given twice, and readers know."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from duebridge.admin.events import GAP, EventReader
from duebridge.store.journal import Journal
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.embedded import stop_embedded
from tests.support.desk import Desk, acks, envelope, shard_of
from tests.support.servers import AT_ONCE, back_up, redis_server, restored, wait_until

STEP = 2**20
MOST = 3 * 2**46  # of the floor: lua/shared/clock_floor.lua


def test_renew_goes_beyond_both_counters_and_journals_what_it_found(desk: Desk) -> None:
    before = desk.generation()
    desk.pending("a", "b", "c")
    desk.pending("d")
    assert desk.counters() == (before + 4, 2)
    desk.fail_over()
    desk.pending("e")
    entry, accepted = desk.entries()[2:]
    assert (entry.kind, entry.items, entry.found) == ("renewed", [], 2)
    assert (entry.before, accepted.before) == (2, entry.sequence)
    assert desk.client.xrange(desk.key("journal"))[2][1][b"g"] == b"%d" % (before + 4)
    assert desk.counters() == (before + STEP + 5, STEP + 3)  # the clock of the desk is behind
    assert [entry.sequence, accepted.sequence] == [STEP + 2, STEP + 3]
    assert desk.record_of("e").generation == before + STEP + 5
    assert desk.store.renew() is False
    assert desk.store.stats().scheduled == 5


def test_renew_by_many_at_once_is_one_renewal(desk: Desk) -> None:
    desk.pending("a")
    last = desk.generation()
    desk.fail_over()
    ids = [f"id-{number}" for number in range(8)]
    threads = [threading.Thread(target=desk.pending, args=(each,)) for each in ids]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    assert [entry.kind for entry in desk.entries()].count("renewed") == 1
    generations = {desk.record_of(each).generation for each in ids}
    assert generations == set(range(last + STEP + 1, last + STEP + 9))


def test_claim_that_was_refused_leases_each_once(desk: Desk) -> None:
    desk.ready("a", "b")
    desk.fail_over()
    claim = desk.store.claim(9, 30_000)
    assert [(each.id, each.flight.attempt) for each in claim.leased] == [("a", 1), ("b", 1)]
    assert desk.store.ack(acks(claim.token, "a", "b")).stale == []


def test_settlement_that_may_have_run_before_the_failover_says_so(desk: Desk) -> None:
    claim = desk.unack("a")
    desk.store.ack(acks(claim.token, "a"))
    desk.fail_over()
    again = desk.store.ack(acks(claim.token, "a"))
    assert (again.stale, again.repeated) == (["a"], True)


def test_renew_on_a_full_store_works(server: Connection) -> None:
    desk = Desk(server, "full")
    desk.ready("a")
    desk.fail_over()
    desk.client.config_set("maxmemory", 1)
    try:
        assert desk.store.claim(1, 30_000).ids == ["a"]
    finally:
        desk.client.config_set("maxmemory", 0)


def test_renew_with_a_clock_far_ahead_leaves_room_for_numbers(desk: Desk) -> None:
    desk.pending("a")
    desk.clock.now_ms = 10**14  # the year 5138
    desk.fail_over()
    assert desk.store.renew()
    assert desk.counters() == (MOST, MOST)
    desk.fail_over()
    assert desk.store.renew()
    assert desk.counters() == (MOST + STEP, MOST + STEP)
    desk.is_whole = False


def test_journal_that_was_renewed_often_counts_its_entries_from_the_beginning(desk: Desk) -> None:
    for number in range(20):
        desk.pending(f"{number}")
        desk.fail_over()
        assert desk.store.renew()
    end, numbering, _ = Journal(desk.connection, desk.shard).end()
    assert numbering.jumps[-1].first == desk.counters()[1]
    assert numbering.count(0, end) == 40
    stats = desk.store.stats()
    assert (stats.scheduled, stats.journal_newest) == (20, 40)


def test_renewals_beyond_those_that_are_kept_forget_the_oldest(desk: Desk) -> None:
    jumps = " ".join(f"{number}:{number + 1}" for number in range(1000))
    desk.client.hset(desk.key("meta"), "journal_jumps", jumps)
    desk.fail_over()
    assert desk.store.renew()
    numbering = Journal(desk.connection, desk.shard).end().numbering
    assert len(numbering.jumps) == 1000
    assert numbering.jumps[0].found == 1


# --- real servers: what was given before the end of one is never given by another ---


def numbers(connection: Connection, given: dict[str, set[int]], ids: list[str]) -> None:
    """Schedule by the server's own clock, and note the numbers that were given."""
    store = shard_of(connection)
    found = store.schedule([envelope(each, delay="1h") for each in ids], max_delay_ms=10**9)
    assert {each.status for each in found} == {"accepted"}
    for each in ids:
        entry = store.get(each)
        assert entry
        assert entry.record
        assert entry.record.generation not in given["generation"]
        given["generation"].add(entry.record.generation)
    last = Journal(connection, store.shard).last()
    assert last not in given["journal"]
    given["journal"].add(last)


@pytest.fixture
def given() -> dict[str, set[int]]:
    return {"generation": set(), "journal": set()}


def test_restart_from_an_older_snapshot_never_gives_a_number_again(
    tmp_path: Path, given: dict[str, set[int]], open_at: Callable[..., Connection]
) -> None:
    backup = tmp_path / "backup.rdb"
    with redis_server(tmp_path, *AT_ONCE) as port:
        connection = open_at(f"redis://127.0.0.1:{port}")
        numbers(connection, given, ["a", "b"])
        back_up(port, backup)
        for each in range(50):
            numbers(connection, given, [f"lost-{each}"])
    for again in range(3):  # each of them has lost what the one before has given
        with restored(backup, tmp_path / f"{again}") as port:
            connection = open_at(f"redis://127.0.0.1:{port}")
            store = shard_of(connection)
            assert store.get("lost-0") is None
            for each in range(20):
                numbers(connection, given, [f"life-{again}-{each}"])
            kinds = [entry.kind for entry in Journal(connection, store.shard).read(0, 10**15)]
            assert kinds == ["accepted", "renewed", *["accepted"] * 20]


def test_restart_of_an_embedded_store_renews_and_has_everything(
    tmp_path: Path, given: dict[str, set[int]]
) -> None:
    for again in range(2):
        connection = open_connection(f"embedded:{tmp_path}")
        numbers(connection, given, [f"{again}-{each}" for each in range(9)])
        entries = list(Journal(connection, shard_of(connection).shard).read(0, 10**15))
        assert [each.kind for each in entries] == ["accepted", "renewed", "accepted"][
            : 2 * again + 1
        ]
        assert shard_of(connection).next().pending == 9 * (again + 1)
        connection.close()
        stop_embedded(tmp_path)


class Replicated(NamedTuple):
    """A master and two replicas of it."""

    master: int
    replicas: tuple[int, int]

    def await_copies(self) -> None:
        """Wait until both replicas have everything."""
        for port in self.replicas:
            with redis.Redis(port=port) as client:
                wait_until(lambda: offset(client) == offset_of(self.master), f"{port}", 20)

    def cut_off(self) -> None:
        """Let the replicas get nothing more, as those that lag; they are masters of their own."""
        for port in self.replicas:
            with redis.Redis(port=port) as client:
                client.replicaof("NO", "ONE")


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[Replicated]:
    homes = [tmp_path / name for name in "abc"]
    for home in homes:
        home.mkdir()
    with redis_server(homes[0], *AT_ONCE) as master:
        of_it = ("--replicaof", f"127.0.0.1 {master}")
        with redis_server(homes[1], *of_it) as one, redis_server(homes[2], *of_it) as other:
            yield Replicated(master, (one, other))


def test_replica_that_lagged_and_is_promoted_never_gives_a_number_again(
    replicated: Replicated, given: dict[str, set[int]], open_at: Callable[..., Connection]
) -> None:
    master = open_at(f"redis://127.0.0.1:{replicated.master}")
    ahead, behind = (EventReader([Journal(master, shard_of(master).shard)]) for _ in range(2))
    for each in range(6):
        numbers(master, given, [f"in-both-{each}"])
    replicated.await_copies()
    replicated.cut_off()
    assert len(list(behind.new())) == 6
    for each in range(20):
        numbers(master, given, [f"lost-{each}"])
    assert len(list(ahead.new())) == 26
    for port in replicated.replicas:  # the second has nothing of the first: two masters
        connection = open_at(f"redis://127.0.0.1:{port}")
        for each in range(20):
            numbers(connection, given, [f"{port}-{each}"])
        check_read(ahead, connection, [20])
        check_read(behind, connection, [])


def check_read(reader: EventReader, connection: Connection, lost: list[int]) -> None:
    """A reader that goes on with a new master has this gap, and the master's twenty entries."""
    fork = EventReader([Journal(connection, shard_of(connection).shard)])
    fork._shards[0].go_to(reader._shards[0]._read)
    found = list(fork.new())
    assert [each.lost_entries for each in found if each.kind == GAP] == lost
    assert len([each for each in found if each.kind == "accepted"]) == 20
    assert list(fork.new()) == []


def offset(client: redis.Redis) -> int:
    info: Any = client.info("replication")
    up = info.get("master_link_status") == "up"
    return int(info["slave_repl_offset"]) if up else -1


def offset_of(port: int) -> int:
    with redis.Redis(port=port) as client:
        info: Any = client.info("replication")
        return int(info["master_repl_offset"])
