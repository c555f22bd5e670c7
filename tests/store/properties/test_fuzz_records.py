"""Damage in the store costs what is damaged and nothing else; nobody who looks falls over.

Damage to an id may cost that id; damage to what the shard shares may stop it until it is mended.
"""

from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from structlog.testing import capture_logs

from duebridge.admin.dead import list_dead
from duebridge.admin.events import EventReader
from duebridge.admin.listing import Listing
from duebridge.admin.operator import Operator
from duebridge.cli.app import app
from duebridge.cli.exits import DEFECT, run_guarded
from duebridge.durations import format_instant
from duebridge.errors import RecordDamaged, RecordTooNew, StoreError
from duebridge.ports.publisher import Delivery
from duebridge.producer import Producer
from duebridge.receipt import Known
from duebridge.store.calls.shard_calls import JOURNAL_CAP_BYTES
from duebridge.store.keys import SHARD_KEYS, routes_key
from duebridge.store.server.connection import Connection
from duebridge.store.wire.record import read_record, unpack
from tests.support.desk import LEASE_MS, Desk
from tests.support.model.fuzzing import Lookout, check_no_defect, embedded, fuzz, fuzz_config

ROUTE = "route"  # as the desk has it
STATES = ("dead", "suspect", "retry", "unack", "ready", "pending")
IDS = [f"{state}-{number}" for state in STATES for number in range(2)]
LATER_MS = 1_000_000
TARGETS = {
    "target": {"broker": "memory", "topic": "t"},
    "dead_letter": {"broker": "memory", "topic": "dlt"},
}
FILE = """\
version: 1
store: {{url: "{url}", namespace: records}}
brokers: {{memory: {{type: memory}}}}
routes: {{route: {{target: {{broker: memory, topic: t}}}}}}
"""
scores = st.none() | st.integers(0, 2 * 10**12)
scores |= st.sampled_from([0.5, 1e15, 2.0**53, 1e300, float("inf"), float("-inf"), -1])
ghosts = st.just(b"") | st.binary(max_size=6) | st.just(b"\xff\xfe")
numbers = st.binary(max_size=8)
numbers |= st.sampled_from([b"", b"-1", b"0", b"1e3", b"nan", b"inf", b"9" * 30, b"0x10"])


class Damage(NamedTuple):
    """What was done: to which id, or to none but the shard; and how it is undone."""

    what: str
    id: str
    mend: Callable[[], Any]


@st.composite
def spoilt_bytes(draw: st.DrawFn, data: bytes) -> bytes | None:
    """Bytes with one to three bits turned, cut, lengthened or replaced; None for none at all."""
    how = draw(st.sampled_from(["flip", "flip", "flip", "cut", "more", "replace", "none"]))
    if how == "none":
        return None
    if how == "replace" or not data:
        return draw(st.binary(max_size=60))
    if how == "cut":
        return data[: draw(st.integers(0, len(data) - 1))]
    if how == "more":
        return data + draw(st.binary(min_size=1, max_size=9))
    spoilt = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        spoilt[draw(st.integers(0, len(data) - 1))] ^= draw(st.integers(1, 255))
    return bytes(spoilt)


class Scene:
    """A shard with two ids in each state, a worker for it, and all that people look at it with."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.client: Any = connection.client
        self.config = fuzz_config("records", {ROUTE: TARGETS})
        self.desk = Desk(connection, "records")
        for state in STATES:
            how = {"delay_ms": LATER_MS} if state == "retry" else {}
            getattr(self.desk, state)(*[each for each in IDS if each.startswith(state)], **how)
        self.key = dict(zip(SHARD_KEYS, self.desk.shard.keys(), strict=True))
        self._saved = {key: self.client.dump(key) for key in self.key.values()}

    def begin(self) -> None:
        """Make the shard what it was when it was filled, and the store nothing else."""
        self.client.flushdb()
        for key, data in self._saved.items():
            if data is not None:
                self.client.restore(key, 0, data)

    def worker(self, now_ms: int) -> Lookout:
        return Lookout(self.connection, self.config, now_ms)

    def look(self, id: str) -> None:
        """Look at everything, and at an id: only a journal may be an error, and says so."""
        operator = Operator(self.config, self.connection)
        operator.stats()
        for place in Listing(ROUTE, operator.stores(ROUTE)).walk():
            known = Known.of(ROUTE, place.entry)
            for instant in (known.due_at_ms, known.expires_at_ms, known.last_failed_at_ms):
                format_instant(instant)
        list(list_dead(operator, ROUTE))
        operator.show(ROUTE, id)
        Producer(self.config, self.connection).get(ROUTE, id)
        with suppress(RecordDamaged):
            list(EventReader(operator.journals(ROUTE)).new())

    def put(self, name: str, field: Any, value: bytes | None) -> None:
        if value is None:
            self.client.hdel(self.key[name], field)
        else:
            self.client.hset(self.key[name], field, value)

    # --- damage to an id ---

    def damage_id(self, data: st.DataObject) -> Damage:
        one = data.draw(st.sampled_from(IDS))
        record = self.client.hget(self.key["envelopes"], one)
        way = data.draw(st.sampled_from(["envelopes", "envelopes", "flight", "flight", "at", "by"]))
        if way in ("envelopes", "flight"):
            before = self.client.hget(self.key[way], one) or b""
            after = data.draw(spoilt_bytes(before))
            self.put(way, one, after)
            what = f"{way} of {one}: {before!r} -> {after!r}"
        elif way == "at":  # another score, another state beside its own, or none
            own = one.partition("-")[0]
            name, score = data.draw(st.sampled_from([own, own, *STATES])), data.draw(scores)
            if score is None:
                self.client.zrem(self.key[own], one)
            else:
                self.client.zadd(self.key[name], {one: score})
            what = f"{one} in {name} at {score}"
        else:  # a ghost: an id in a state that nobody scheduled, with or without a record
            ghost, name = data.draw(ghosts), data.draw(st.sampled_from(STATES))
            self.client.zadd(self.key[name], {ghost: data.draw(st.integers(0, 2 * 10**12))})
            if data.draw(st.booleans()):
                self.put("envelopes", ghost, record)
            what = f"ghost {ghost!r} in {name}"
        return Damage(what, one, lambda: self.put("envelopes", one, record))

    # --- damage to the shard ---

    def damage_shard(self, data: st.DataObject) -> Damage:
        ways = [self._meta, self._meta, self._journal, self._memory, self._kind, self._registry]
        way = data.draw(st.sampled_from(ways))
        return Damage(way.__name__, "", way(data))

    def _meta(self, data: st.DataObject) -> Callable[[], Any]:
        names = [*sorted(self.client.hkeys(self.key["meta"])), b"held_since", b"journal_dropped"]
        name = data.draw(st.sampled_from(names))
        before = self.client.hget(self.key["meta"], name)
        self.put("meta", name, data.draw(numbers))
        return lambda: self.put("meta", name, before)

    def _journal(self, data: st.DataObject) -> Callable[[], Any]:
        """Spoil a field of an entry; the numbers stay dense."""
        entries = self.client.xrange(self.key["journal"])
        number, fields = data.draw(st.sampled_from(entries))
        name = data.draw(st.sampled_from(sorted(fields)))
        after = data.draw(spoilt_bytes(fields[name]))
        changed = {**fields, name: after} if after is not None else {**fields}
        if after is None:
            del changed[name]
        self.client.delete(self.key["journal"])
        for each, given_fields in entries:
            here = changed if each == number else given_fields
            self.client.xadd(self.key["journal"], here or {b"x": b""}, id=each)
        return lambda: None

    def _memory(self, data: st.DataObject) -> Callable[[], Any]:
        name, score = data.draw(st.binary(max_size=5)), data.draw(scores) or 0
        self.client.hset(self.key["memory"], name, data.draw(st.binary(max_size=20)))
        self.client.zadd(self.key["forget"], {name: score})
        return lambda: self.client.zrem(self.key["forget"], name)

    def _registry(self, data: st.DataObject) -> Callable[[], Any]:
        routes = routes_key(self.desk.shard.namespace)
        self.client.hset(routes, ROUTE, data.draw(numbers))
        return lambda: self.client.hdel(routes, ROUTE)

    def _kind(self, data: st.DataObject) -> Callable[[], Any]:
        """A key holds another kind of thing; its own comes back as it was."""
        key = self.key[data.draw(st.sampled_from([n for n in SHARD_KEYS if n != "wake"]))]
        before = self.client.dump(key)
        self.client.set(key, b"no such thing")

        def mend() -> None:
            self.client.delete(key)
            if before is not None:
                self.client.restore(key, 0, before)

        return mend


@pytest.fixture(scope="module")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"embedded:{tmp_path_factory.mktemp('records')}"


@pytest.fixture(scope="module")
def scene(store_url: str) -> Iterator[Scene]:
    with embedded(store_url) as connection:
        yield Scene(connection)


def fate_of(record: bytes | None) -> str:
    """What must become of an id, by the record that is now kept of it."""
    try:
        unpack(read_record(record or b"").blob)
    except RecordTooNew:
        return "newer"
    except RecordDamaged:
        return "gone" if record is None else "poison"
    return "any"


def finish(floor: Lookout) -> None:
    """Let every delay and every lease end, and the worker do what is left."""
    floor.advance(LATER_MS)
    for _ in range(6):
        floor.advance(LEASE_MS + 1000)
        turns = 0
        while floor.worker.run_once() and turns < 50:
            turns += 1


def check_arrived_once(delivered: list[Delivery], ids: list[str]) -> None:
    for name in ids:
        where = (name, "dlt" if name.startswith("dead") else "t")
        found = [each.body for each in delivered if (each.id, each.target.topic) == where]
        assert found == [f"body of {name}".encode()], name


@fuzz(0.56)
@given(data=st.data())
def test_damage_to_one_id_costs_no_other(data: st.DataObject, scene: Scene) -> None:
    scene.begin()
    damage = scene.damage_id(data)
    note(damage.what)
    found = scene.client.hget(scene.key["envelopes"], damage.id)
    fate = fate_of(found)
    scene.look(damage.id)
    worker = scene.worker(scene.desk.clock())
    with capture_logs() as logs:
        finish(worker)
    delivered = worker.publisher.delivered
    scene.look(damage.id)
    check_no_defect(logs)
    if fate == "newer":  # and then a newer worker comes
        assert scene.client.hget(scene.key["envelopes"], damage.id) == found
        assert worker.state(damage.id, ROUTE) not in (None, "dead") or damage.id.startswith("dead")
        damage.mend()
        newer = scene.worker(worker.now_ms())
        finish(newer)
        delivered += newer.publisher.delivered
    elif fate == "poison":
        [letter] = [each for each in delivered if each.id == damage.id]
        assert (letter.target.topic, letter.body) == ("dlt", found)
        assert dict(letter.headers)["x-dlq-reason"] == "poison"
    elif damage.what.startswith("envelopes") and fate == "any":
        assert worker.state(damage.id, ROUTE) or damage.id in {each.id for each in delivered}
    check_arrived_once(delivered, [each for each in IDS if each != damage.id])


@fuzz(0.4)
@given(data=st.data(), cap_bytes=st.sampled_from([JOURNAL_CAP_BYTES, 300]))
def test_damage_to_a_shard_costs_nobody_once_it_is_mended(
    data: st.DataObject, cap_bytes: int, scene: Scene
) -> None:
    scene.begin()
    damage = scene.damage_shard(data)
    note(damage.what)
    with suppress(StoreError):
        scene.look(IDS[0])
    worker = scene.worker(scene.desk.clock())
    worker.stores[ROUTE]._journal_cap_bytes = cap_bytes
    with capture_logs() as logs:
        finish(worker)
        damage.mend()
        finish(worker)
    check_no_defect(logs)
    assert {each.id for each in worker.publisher.delivered} == set(IDS)
    assert worker.stores[ROUTE].next().envelopes == 0


def commands(id: str) -> list[list[str]]:
    """What an operator types who looks for an id, and then settles it."""
    looks = [["ls", ROUTE], ["dead", "ls", ROUTE], ["stats"], ["events", ROUTE]]
    looks += [["get", ROUTE, id], ["dead", "show", ROUTE, id, "--body"]]
    as_json = [[*words, "--output", "json"] for words in looks]
    settles = [["dead", "replay", ROUTE, id], ["reschedule", ROUTE, id, "--delay", "5s"]]
    return [*looks, *as_json, *settles, ["cancel", ROUTE, id], ["dead", "drop", ROUTE, id]]


@fuzz(0.04)
@given(data=st.data())
def test_no_command_falls_over_damage(
    data: st.DataObject, scene: Scene, store_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scene.begin()
    damage = data.draw(st.sampled_from([scene.damage_id, scene.damage_shard]))(data)
    note(damage.what)
    path = Path(tmp_path_factory.mktemp("records"), "duebridge.yaml")
    path.write_text(FILE.format(url=store_url))
    typed = st.lists(st.sampled_from(commands(damage.id or IDS[0])), min_size=2, max_size=2)
    for words in data.draw(typed):
        said = TextIOWrapper(BytesIO(), write_through=True)
        argv = ["duebridge", "--config", str(path), *words]
        with mock.patch("sys.argv", argv), redirect_stdout(said), redirect_stderr(said):
            code = run_guarded(app)
        assert code != DEFECT, (words, said.buffer.getvalue())  # type: ignore[attr-defined]
