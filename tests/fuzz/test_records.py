"""Damage in the store costs what is damaged and nothing else; nobody who looks at it falls over."""

from contextlib import redirect_stderr, redirect_stdout, suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from structlog.testing import capture_logs

from duebridge.admin.operator import Operator
from duebridge.cli.app import app
from duebridge.cli.exits import DEFECT, run_guarded
from duebridge.durations import format_instant
from duebridge.errors import RecordDamaged, RecordTooNew, StoreError
from duebridge.ports.publisher import Delivery
from duebridge.producer import Producer
from duebridge.receipt import Known
from duebridge.store.codec import unpack
from duebridge.store.connection import Connection
from duebridge.store.delay_store import JOURNAL_CAP_BYTES
from duebridge.store.record import read_record
from tests.fuzz import party
from tests.fuzz.budget import drawn, fuzz
from tests.fuzz.lookout import Lookout, fuzz_config
from tests.fuzz.records import IDS, LATER_MS, Vandal, body_of, fill, restore, save
from tests.store.desk import Desk

ROUTE = "route"  # as the desk has it
ROUNDS = 6
MOST_TURNS = 50
ROUTES = {
    ROUTE: {
        "target": {"broker": "memory", "topic": "t"},
        "dead_letter": {"broker": "memory", "topic": "dlt"},
    }
}


class Scene:
    """A saved shard, a worker for it, and everything that people look at it with."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.client: Any = connection.client
        self.config = fuzz_config("records", ROUTES)
        self.client.flushdb()
        self.desk = Desk(connection, "records")
        fill(self.desk)
        self._saved = save(self.client, self.desk.shard)
        self._producer = Producer(self.config, connection)

    def begin(self) -> None:
        """Make the shard what it was when it was filled."""
        restore(self.client, self._saved)

    def vandal(self, data: st.DataObject) -> Vandal:
        return Vandal(data.draw, self.client, self.desk.shard)

    def worker(self, now_ms: int) -> Lookout:
        return Lookout(self.connection, self.config, now_ms)

    def look(self, id: str) -> None:
        """Look at everything, and at an id: only a journal may be an error, and says so."""
        operator = Operator(self.config, self.connection)
        operator.stats()
        for place in operator.listing(ROUTE).walk():
            known = Known.of(ROUTE, place.entry)
            for instant in (known.due_at_ms, known.expires_at_ms, known.last_failed_at_ms):
                format_instant(instant)
        list(operator.dead(ROUTE))
        operator.show(ROUTE, id)
        self._producer.get(ROUTE, id)
        with suppress(RecordDamaged):
            list(operator.events(ROUTE).new())


@pytest.fixture(scope="module")
def scene(connection: Connection) -> Scene:
    return Scene(connection)


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
    for _ in range(ROUNDS):
        floor.advance(party.LEASE_MS + 1000)
        turns = 0
        while floor.worker.run_once() and turns < MOST_TURNS:
            turns += 1


def check_arrived_once(delivered: list[Delivery], ids: list[str]) -> None:
    for name in ids:
        where = (name, "dlt" if name.startswith("dead") else "t")
        found = [each.body for each in delivered if (each.id, each.target.topic) == where]
        assert found == [body_of(name)], name


@fuzz(0.56)
@given(data=st.data())
def test_damage_to_one_id_costs_no_other(data: st.DataObject, scene: Scene) -> None:
    scene.begin()
    damage = scene.vandal(data).damage_id()
    note(damage.what)
    drawn["records"] += 1
    found = scene.client.hget(scene.desk.key("envelopes"), damage.id)
    fate = fate_of(found)
    scene.look(damage.id)
    worker = scene.worker(scene.desk.clock())
    with capture_logs() as logs:
        finish(worker)
    delivered = worker.publisher.delivered
    scene.look(damage.id)
    party.check_no_defect(logs)
    if fate == "newer":  # and then a newer worker comes
        assert scene.client.hget(scene.desk.key("envelopes"), damage.id) == found
        assert worker.state(damage.id, ROUTE) not in (None, "dead") or damage.id.startswith("dead")
        damage.mend()
        newer = scene.worker(worker.now_ms())
        finish(newer)
        delivered += newer.publisher.delivered
    elif fate == "poison":
        letters = [each for each in delivered if each.id == damage.id]
        assert [each.target.topic for each in letters] == ["dlt"]
        assert dict(letters[0].headers)["x-dlq-reason"] == "poison"
        assert letters[0].body == found
    elif damage.what.startswith("envelopes") and fate == "any":
        assert worker.state(damage.id, ROUTE) or damage.id in {each.id for each in delivered}
    check_arrived_once(delivered, [each for each in IDS if each != damage.id])


@fuzz(0.4)
@given(data=st.data(), cap_bytes=st.sampled_from([JOURNAL_CAP_BYTES, 300]))
def test_damage_to_a_shard_costs_nobody_once_it_is_mended(
    data: st.DataObject, cap_bytes: int, scene: Scene
) -> None:
    scene.begin()
    damage = scene.vandal(data).damage_shard()
    note(damage.what)
    drawn["records"] += 1
    with suppress(StoreError):
        scene.look(IDS[0])
    worker = scene.worker(scene.desk.clock())
    worker.stores[ROUTE]._journal_cap_bytes = cap_bytes
    with capture_logs() as logs:
        finish(worker)
        damage.mend()
        finish(worker)
    party.check_no_defect(logs)
    arrived = {each.id for each in worker.publisher.delivered}
    assert arrived == set(IDS)
    assert worker.stores[ROUTE].next().envelopes == 0


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory, store_url: str) -> Path:
    path = tmp_path_factory.mktemp("records") / "duebridge.yaml"
    path.write_text(
        "version: 1\n"
        f"store: {{url: '{store_url}', namespace: records}}\n"
        "brokers: {memory: {type: memory}}\n"
        f"routes: {{{ROUTE}: {{target: {{broker: memory, topic: t}}}}}}\n"
    )
    return path


def commands(id: str) -> list[list[str]]:
    """What an operator types who looks for an id, and then settles it."""
    looks = [["ls", ROUTE], ["dead", "ls", ROUTE], ["stats"], ["events", ROUTE]]
    looks += [["get", ROUTE, id], ["dead", "show", ROUTE, id, "--body"]]
    as_json = [[*words, "--output", "json"] for words in looks]
    settles = [["dead", "replay", ROUTE, id], ["reschedule", ROUTE, id, "--delay", "5s"]]
    return [*looks, *as_json, *settles, ["cancel", ROUTE, id], ["dead", "drop", ROUTE, id]]


@fuzz(0.04)
@given(data=st.data())
def test_no_command_falls_over_damage(data: st.DataObject, scene: Scene, config_file: Path) -> None:
    scene.begin()
    vandal = scene.vandal(data)
    damage = data.draw(st.sampled_from([vandal.damage_id, vandal.damage_shard]))()
    note(damage.what)
    drawn["records"] += 1
    typed = st.lists(st.sampled_from(commands(damage.id or IDS[0])), min_size=2, max_size=2)
    for words in data.draw(typed):
        said = TextIOWrapper(BytesIO(), write_through=True)
        argv = ["duebridge", "--config", str(config_file), *words]
        with mock.patch("sys.argv", argv), redirect_stdout(said), redirect_stderr(said):
            code = run_guarded(app)
        assert isinstance(said.buffer, BytesIO)
        assert code != DEFECT, (words, said.buffer.getvalue())
