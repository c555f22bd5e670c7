"""One shard of a real store in a namespace of its own, with a clock that only the test moves."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from duebridge.envelope import Envelope
from duebridge.errors import StoreUnavailable
from duebridge.ports.publisher import Reason
from duebridge.store.calls.shard_calls import JOURNAL_CAP_BYTES
from duebridge.store.delay_store import DelayStore
from duebridge.store.journal import JournalEntry, read_entry
from duebridge.store.keys import SHARD_KEYS, Shard, epochs_key, routes_key
from duebridge.store.life import RouteLife
from duebridge.store.registry import Registry
from duebridge.store.server.connection import Argument, Connection
from duebridge.store.server.scripts import script
from duebridge.store.wire.leases import Claim
from duebridge.store.wire.packed_row import PackedRow, pack_row
from duebridge.store.wire.poll import Poll
from duebridge.store.wire.record import NEWEST_LAYOUT, Flight, Record, read_flight, read_record
from duebridge.store.wire.replies import ScheduleReply, SettleReply
from duebridge.store.wire.transitions import Ack, Burial, HoldClock, Postponement, Retry, SetAside
from tests.support.model.invariants import (
    STATES,
    Snapshot,
    check_all,
    check_histogram,
    check_stats,
    poll_of,
)
from tests.support.redis.least import admin_of

NOW_MS = 1_700_000_000_000
LEASE_MS = 30_000
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
NOT_MINE = b"\xff" * 12


def names(count: int, prefix: str = "a") -> list[str]:
    """Ids, in order."""
    return [f"{prefix}{n:05d}" for n in range(count)]


class ManualClock:
    """The store's time, as the test says it is."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms


def envelope(id: str = "a", delay: str | None = "1s", **given: Any) -> Envelope:
    """An envelope whose body says whose it is."""
    body = given.pop("body", f"body of {id}".encode())
    if "at" in given:
        delay = None
    return Envelope.new(body, id=id, delay=delay, **given)


def of_generation(row: PackedRow, generation: int) -> PackedRow:
    """The row with another generation: a cold row's, or 0."""
    given = row.due, row.expires, row.remember_ms, row.content
    return PackedRow.new(row.id, *given, generation)


def acks(token: bytes, *ids: str) -> list[Ack]:
    """Acks of ids that nobody remembers."""
    return [Ack(each, token) for each in ids]


def remembering(claim: Claim) -> list[Ack]:
    """Acks of everything claimed, with what is remembered."""
    return [
        Ack(each.id, claim.token, each.record.remember_ms, each.record.content_hash)
        for each in claim.leased
    ]


def burial(
    id: str,
    reason: Reason = Reason.INVALID,
    failed: bool = True,
    unsure: bool = False,
    error: str = "",
) -> Burial:
    return Burial(id=id, reason=reason, is_failure=failed, is_unsure=unsure, error=error)


def retrying(
    id: str,
    delay_ms: int = 1,
    failed: bool = True,
    unsure: bool = False,
    error: str = "",
    clock: HoldClock = "end",
) -> Retry:
    return Retry(
        id=id, delay_ms=delay_ms, is_failure=failed, is_unsure=unsure, error=error, clock=clock
    )


def postponed(*ids: str, delay_ms: int = 5000) -> list[Postponement]:
    """Dead letters that could not be sent."""
    return [Postponement(each, delay_ms, "E\nno") for each in ids]


def aside(id: str, delay_ms: int = 10_000, tag: str = "tag-of-t", **how: Any) -> SetAside:
    """`how`: clock, is_unsure, error."""
    return SetAside(id=id, delay_ms=delay_ms, tag=tag, **how)


def noted(entry: JournalEntry) -> list[tuple[str, tuple[int, int | None, int | None]]]:
    """Due, attempt and reason of each id of an entry."""
    return [(name, note[:3]) for name, note in entry.items]


def shard_of(connection: Connection) -> DelayStore:
    """Return the shard of a route, by the server's own clock."""
    life = RouteLife(Registry(connection, "ns"), "route", 1, registers=True)
    return DelayStore(connection, Shard("ns", "route", 0), life=life)


def answers(store: DelayStore) -> bool:
    with suppress(StoreUnavailable):
        return store.next().now_ms > 0
    return False


class Desk:
    """Brings ids into each state, and looks at every byte that the shard keeps.

    `is_whole`: nobody has damaged the shard, so that `check` must hold.
    """

    def __init__(self, connection: Connection, namespace: str, **options: Any) -> None:
        self.connection = connection
        self.is_whole = True
        self.shard = Shard(namespace, "route", 0)
        self.clock = ManualClock()
        registry = Registry(connection, namespace)
        self.life = RouteLife(registry, self.shard.route, 1, registers=True)
        standard = {"has_dead_letter": True, "now_ms": self.clock, "life": self.life}
        self._options = {**standard, **options}
        self.open()
        self.store = DelayStore(connection, self.shard, **self._options)

    def open(self) -> None:
        """Give the shard a life, as opening its route does; every view of it knows that life."""
        self.life.look()

    def again(self, **options: Any) -> DelayStore:
        """Another view of the same shard, with other options."""
        return DelayStore(self.connection, self.shard, **{**self._options, **options})

    # --- bring ids into a state ---

    def schedule(self, *given: Envelope | str, **options: Any) -> list[ScheduleReply]:
        envelopes = [each if isinstance(each, Envelope) else envelope(each) for each in given]
        options.setdefault("max_delay_ms", YEAR_MS)
        if generations := options.pop("generations", ()):
            pairs = zip(envelopes, generations, strict=True)
            return self.store.schedule(
                [of_generation(pack_row(one, 0), number) for one, number in pairs], **options
            )
        return self.store.schedule(envelopes, **options)

    def pending(self, *given: Envelope | str) -> None:
        """Due in one second."""
        assert [each.status for each in self.schedule(*given)] == ["accepted"] * len(given)

    def ready(self, *given: Envelope | str) -> None:
        self.pending(*given)
        self.clock.advance(1000)
        assert self.store.promote()[1] == len(given)

    def unack(self, *given: Envelope | str) -> Claim:
        self.ready(*given)
        claim = self.store.claim(len(given), LEASE_MS)
        assert len(claim.leased) == len(given)
        return claim

    def retry(self, *given: Envelope | str, delay_ms: int = 1000, **how: Any) -> None:
        claim = self.unack(*given)
        assert self.put_back(claim, delay_ms=delay_ms, **how).stale == []

    def set_aside(self, *given: Envelope | str, **how: Any) -> None:
        """Put envelopes back that wait for a target; `how` as of `aside`."""
        claim = self.unack(*given)
        assert self.put_aside(claim, **how).stale == []

    def put_aside(self, claim: Claim, **how: Any) -> SettleReply:
        """Set everything of a claim aside."""
        return self.store.set_aside(claim.token, [aside(name, **how) for name in claim.ids])

    def dead(self, *given: Envelope | str, reason: Reason = Reason.TOO_LARGE) -> None:
        claim = self.unack(*given)
        burials = [burial(name, reason, error="E\ntoo large") for name in claim.ids]
        assert self.store.bury(claim.token, burials).stale == []

    def suspect(self, *given: Envelope | str) -> None:
        """Let the leases of all run out twice."""
        self.unack(*given)
        self.run_out()
        assert len(self.store.claim(len(given), LEASE_MS).leased) == len(given)
        self.run_out()

    def shunt(self, *given: Envelope | str) -> Claim:
        self.dead(*given)
        claim = self.store.shunt(len(given), LEASE_MS)
        assert len(claim.leased) == len(given)
        return claim

    def bring(self, state: str, *given: Envelope | str) -> Claim | None:
        """Bring envelopes into a state: one of `STATES`, or `shunting`."""
        return {**{name: getattr(self, name) for name in STATES}, "shunting": self.shunt}[state](
            *given
        )

    def put_back(self, claim: Claim, *, delay_ms: int = 1000, **how: Any) -> SettleReply:
        """Retry everything of a claim."""
        retries = [retrying(each.id, delay_ms, **how) for each in claim.leased]
        return self.store.retry(claim.token, retries)

    def run_out(self, **how: Any) -> Poll:
        """Let every lease of now end, and take the envelopes back."""
        self.clock.advance(LEASE_MS)
        return self.store.reclaim(**how)[0]

    def claim_all(self) -> Claim:
        """Promote what is due and claim it."""
        self.store.promote()
        return self.store.claim(1000, LEASE_MS)

    def fail_over(self) -> None:
        """Let the shard be on another server than it was renewed on."""
        self.client.hset(self.key("meta"), "master", secrets.token_hex(20))

    def replaced_record(self, id: str, change: Any) -> None:
        """Change the bytes of a record behind the store's back."""
        record = self.client.hget(self.key("envelopes"), id)
        self.client.hset(self.key("envelopes"), id, change(record))

    def make_newer(self, id: str) -> None:
        """Give a record the layout of a later version."""
        self.replaced_record(id, lambda record: bytes([NEWEST_LAYOUT + 1]) + record[1:])

    def lose_record(self, id: str) -> None:
        """Make an id a ghost."""
        self.is_whole = False
        assert self.client.hdel(self.key("envelopes"), id) == 1

    def spoil(self, id: str, how: str | int) -> None:
        """Make an id a `ghost`, its record `newer`, or keep so many bytes of that."""
        if how == "ghost":
            self.lose_record(id)
        elif how == "newer":
            self.make_newer(id)
        else:
            self.replaced_record(id, lambda record: record[:how])

    # --- run a script as the store would ---

    def run(self, name: str, *arguments: Argument) -> Any:
        keys = self.shard.keys()
        life = b":".join(self.client.hmget(self.key("meta"), "epoch", "shards"))
        return self.connection.run(
            script(name), keys, (self.clock(), JOURNAL_CAP_BYTES, life, *arguments)
        ).value

    # --- look ---

    @property
    def client(self) -> Any:
        """The test's own client, which may do everything."""
        return admin_of(self.connection)

    def key(self, name: str) -> str:
        return self.shard.key(name)

    def generation(self) -> int:
        """The last generation that was given: of a new shard, that before its first."""
        return int(self.client.hget(self.key("meta"), "generation"))

    def counters(self) -> tuple[int, int]:
        """The last generation and journal number."""
        found = self.client.hmget(self.key("meta"), "generation", "journal_sequence")
        return int(found[0] or 0), int(found[1] or 0)

    def state_of(self, id: str) -> str | None:
        """The structure that holds an id; fails if it is in two."""
        found = [name for name in STATES if self.score_of(id, name) is not None]
        assert len(found) <= 1, (id, found)
        return found[0] if found else None

    def score_of(self, id: str, state: str) -> float | None:
        score: float | None = self.client.zscore(self.key(state), id)
        return score

    def record_of(self, id: str) -> Record:
        return read_record(self.client.hget(self.key("envelopes"), id))

    def flight_bytes(self, id: str) -> bytes | None:
        found: bytes | None = self.client.hget(self.key("flight"), id)
        return found

    def flight_of(self, id: str) -> Flight:
        return read_flight(self.flight_bytes(id) or b"")

    def entries(self) -> list[JournalEntry]:
        return [read_entry(*each) for each in self.client.xrange(self.key("journal"))]

    def journal(self) -> list[tuple[str, list[str]]]:
        """Kind and ids of every entry."""
        return [(each.kind, [name for name, _ in each.items]) for each in self.entries()]

    def last_entry(self) -> JournalEntry:
        return self.entries()[-1]

    def snapshot(self) -> Snapshot:
        """Everything the shard keeps."""
        with self.client.pipeline(transaction=False) as pipe:
            for name in (*STATES, "forget"):
                pipe.zrange(self.key(name), 0, -1, withscores=True)
            for name in ("envelopes", "flight", "meta", "memory"):
                pipe.hgetall(self.key(name))
            pipe.xrange(self.key("journal"))
            values = pipe.execute()
        names = (*STATES, "forget", "envelopes", "flight", "meta", "memory", "journal")
        return dict(zip(names, values, strict=True))

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Assert that the calls made meanwhile change nothing."""
        before = self.snapshot()
        yield
        assert self.snapshot() == before

    def check(self) -> Snapshot:
        """Assert what must hold between any two calls; returns the snapshot it looked at."""
        found = self.snapshot()
        check_all(found, self.clock())
        poll = self.store.next()
        assert poll == poll_of(found, poll.now_ms)
        stats = self.store.stats()
        check_stats(found, stats, stats.poll.now_ms)
        edges = [poll.now_ms + ms for ms in (-LEASE_MS, 0, 1, 1000, LEASE_MS, YEAR_MS)]
        check_histogram(found, self.store.histogram(edges), edges)
        assert {name for name, _ in found["forget"]} == set(found["memory"])
        return found

    def delete(self) -> None:
        self.client.delete(*[self.key(name) for name in SHARD_KEYS])
        for key in (routes_key, epochs_key):
            self.client.hdel(key(self.shard.namespace), self.shard.route)
