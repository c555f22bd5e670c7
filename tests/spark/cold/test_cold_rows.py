"""The cold tier as `get` and `ls` show it: rows of the files, corrected by the store's notes."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from duebridge import cold_rows
from duebridge.async_producer import AsyncProducer
from duebridge.cold_rows import ColdRow
from duebridge.config.load import load_config
from duebridge.config.models import HOUR_MS, ColdTier
from duebridge.durations import format_instant
from duebridge.receipt import Known
from duebridge.store.due_window import DueWindow
from duebridge.store.routing import shard_number
from duebridge_connectors.spark.cold.cold_reader import read_cold_rows
from duebridge_connectors.spark.cold.commit_log import DEMOTED, HYDRATED, REMOVED, ColdLog, Commit
from tests.spark.cold_route import listed
from tests.spark.world import LATER_MS, World
from tests.support.serving import serving

START = LATER_MS // HOUR_MS * HOUR_MS


@pytest.fixture
def log(world: World) -> ColdLog:
    return ColdLog(f"{world.home}/cold", "cold")


def batch(
    log: ColdLog,
    name: str,
    *ids: str,
    hour: int = 0,
    finished: bool = True,
    generations: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """Leave a batch of one file as demote does; returns the file."""
    day, of_day = divmod(START + hour * HOUR_MS, 24 * HOUR_MS)
    date = pa.scalar(day, pa.int32()).cast(pa.date32()).as_py()
    file = f"batch={name}/due_date={date}/due_hour={of_day // HOUR_MS}/part-0.parquet"
    due = START + hour * HOUR_MS
    rows = [
        {"id": row_id, "batch": name, "generation": generations.get(row_id, 5),
         "due_at_ms": due + number, "scheduled_at_ms": 7, "expires_at_ms": 0,
         "shard": shard_number(row_id, 2)}
        for number, row_id in enumerate(ids)
    ]  # fmt: skip
    _write(f"{log.root}/{file}", pa.Table.from_pylist(rows))
    log.commit(Commit(kind=DEMOTED, batch=name, at_ms=1, rows=len(ids), files=(file,)))
    if finished:
        log.commit(Commit(kind=REMOVED, batch=name, at_ms=2))
    return file


def _write(path: str, rows: pa.Table) -> None:
    Path(path).parent.mkdir(parents=True)
    pq.write_table(rows, path)


def get_awaited(world: World, name: str) -> Known | None:
    async def get() -> Known | None:
        async with AsyncProducer.from_config(world.config) as producer:
            return await producer.get("cold", name)

    return asyncio.run(get())


def open_route(world: World) -> None:
    """Open the route; its generations are beyond those of the rows."""
    world.producer().get("cold", "absent")


def reschedule(world: World, dues_ms: dict[str, int]) -> None:
    """Give cold rows another due instant, by tombstones."""
    open_route(world)
    producer = world.producer()
    for name, due_at_ms in dues_ms.items():
        assert producer.reschedule("cold", name, at=due_at_ms) == "recorded"


def test_get_and_ls_of_the_cold_obey_what_was_recorded(world: World, log: ColdLog) -> None:
    store = world.store("cold", 0, cold_tier_ms=1 << 40)
    open_route(world)
    batch(log, "B", "cancelled", "moved", "kept")
    producer = world.producer()
    assert producer.cancel("cold", "cancelled") == "recorded"
    assert producer.reschedule("cold", "moved", at=START + 99) == "recorded"
    for name, due in (("moved", START + 99), ("kept", START + 2)):
        done = world.command("get", "cold", name, "--output", "json")
        assert (done.code, done.json()["state"], done.json()["due_at_ms"]) == (0, "cold", due)
        known = producer.get("cold", name)
        assert known is not None
        assert (known.state, known.due_at_ms) == ("cold", due)
        assert get_awaited(world, name) == known
    assert world.command("get", "cold", "cancelled").code == 1
    assert producer.get("cold", "cancelled") is producer.get("cold", "absent") is None
    assert world.command("get", "cold", "absent").code == 1
    assert listed(world) == ["kept", "moved"]
    assert store.next().pending == 0


def test_get_of_the_cold_over_http_obeys_what_was_recorded(world: World, log: ColdLog) -> None:
    open_route(world)
    batch(log, "B", "cancelled", "moved")
    assert world.producer().cancel("cold", "cancelled") == "recorded"
    assert world.producer().reschedule("cold", "moved", at=START + 99) == "recorded"
    config = yaml.safe_load(Path(world.config).read_text())
    home = world.home / world.namespace
    with serving(home, world.url, config) as served, served.client() as client:
        found = {
            name: client.get(f"/v1/routes/cold/envelopes/{name}")
            for name in ("moved", "cancelled", "absent")
        }
    assert [each.status_code for each in found.values()] == [200, 404, 404]
    moved = found["moved"].json()
    assert (moved["state"], moved["due_at_ms"]) == ("cold", START + 99)


def test_console_shows_what_is_cold(world: World, log: ColdLog) -> None:
    """Its state and due instant; the files alone have its content."""
    open_route(world)
    batch(log, "B", "far")
    config = yaml.safe_load(Path(world.config).read_text())
    home = world.home / world.namespace
    with serving(home, world.url, config) as served, served.client() as client:
        asked = {"route": "cold", "id": " far"}
        found = client.get("/search", params=asked, follow_redirects=True)
        anywhere = client.get("/search", params={"id": " far"})
        absent = client.get("/envelope", params={"route": "cold", "id": "absent"})
        proof = re.search(r'name="proof" value="([^"]+)"', found.text)
        assert proof is not None
        form = {"proof": proof[1], "route": "cold", "id": "far"}
        client.post("/envelope/cancel", data=form, headers={"Origin": served.url})
        cancelled = client.get("/envelope", params={"route": "cold", "id": "far"})
    assert (found.status_code, found.url.path) == (200, "/envelope")
    assert "It waits in the files of the cold tier, due in " in found.text
    assert "route=cold&amp;id=far" in anywhere.text
    assert absent.status_code == 404
    assert "Nor has the cold tier it" in absent.text
    assert "It waits in the files" not in cancelled.text


def test_get_of_what_comes_back_meanwhile_finds_it_in_the_store(
    world: World, log: ColdLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the store's answer and the files' a hydrate may end."""
    open_route(world)
    producer = world.producer()

    def hydrated(*_: object) -> Iterator[ColdRow]:
        producer.schedule("cold", b"", id="a", at=START)
        return iter(())

    monkeypatch.setattr(cold_rows, "_reader", lambda: hydrated)
    known = producer.get("cold", "a")
    assert known is not None
    assert (known.state, known.due_at_ms) == ("pending", START)


def test_ls_of_the_cold_is_in_order_within_its_window_and_limit(world: World, log: ColdLog) -> None:
    batch(log, "B", "c", "d", hour=1)
    batch(log, "C", "a", "b")
    assert listed(world) == ["a", "b", "c", "d"]
    assert listed(world, "--limit", "2") == ["a", "b"]
    window = ["--due-after", str(START + 1), "--due-before", str(START + HOUR_MS)]
    assert listed(world, *window) == ["b", "c"]


def test_ls_of_the_cold_goes_on_behind_a_row_that_was_rescheduled(
    world: World, log: ColdLog
) -> None:
    batch(log, "B", *"abcdefgh")
    moved = {"c": 3 * HOUR_MS, "d": 7, "g": -HOUR_MS, "h": 7}
    reschedule(world, {name: START + later for name, later in moved.items()})
    pages = [listed(world, "--limit", "3")]
    while pages[-1][1:]:
        known = world.producer().get("cold", pages[-1][-1])
        assert known is not None
        pages.append(listed(world, "--limit", "3", "--due-after", str(known.due_at_ms)))
    assert pages == [[*"gab"], [*"bef"], [*"fdh"], [*"dhc"], ["c"]]


def test_ls_of_the_cold_finds_a_rescheduled_row_by_its_new_due_instant_alone(
    world: World, log: ColdLog
) -> None:
    batch(log, "B", *"abc", hour=1)
    batch(log, "C", "d", hour=30)
    reschedule(world, {"b": START + 30 * HOUR_MS, "d": START, "absent": START})
    begin = ["--due-after", str(START), "--due-before", str(START + 2 * HOUR_MS)]
    assert listed(world, *begin) == ["d", "a", "c"]
    assert listed(world, "--due-after", str(START + 30 * HOUR_MS)) == ["b"]
    assert listed(world, "--due-before", str(START)) == ["d"]


def test_ls_of_the_cold_looks_up_no_rescheduled_row_before_its_turn(
    world: World, log: ColdLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"i{number:02}" for number in range(40)]
    batch(log, "B", *ids)
    reschedule(world, {name: START + HOUR_MS + n for n, name in enumerate(ids[10:])})
    reads: list[list[str]] = []

    def noting(
        tier: ColdTier, route: str, names: tuple[str, ...], window: DueWindow, leaving: int | None
    ) -> Iterator[ColdRow]:
        reads.append([*names])
        return read_cold_rows(tier, route, names, window, leaving)

    monkeypatch.setattr(cold_rows, "_reader", lambda: noting)
    monkeypatch.setattr(cold_rows, "LOOKED_UP", 2)
    config = load_config(world.config)
    walk = cold_rows.ColdRows(config, world.connection, config.routes["cold"]).walk()
    assert [known.id for known in islice(walk, 13)] == ids[:13]
    assert reads == [[], ids[10:12], ids[12:14]]


def test_ls_of_more_cold_rows_than_the_limit_says_how_to_go_on(world: World, log: ColdLog) -> None:
    batch(log, "B", "a", "b", "c", "d")
    words = ("ls", "cold", "--state", "cold", "--output", "json")
    whole = world.command(*words, "--limit", "4")
    assert (len(whole.json_lines()), whole.err) == (4, "")
    cut = world.command(*words, "--limit", "3")
    instant = format_instant(START + 2)
    assert (len(cut.json_lines()), cut.err) == (3, f"there are more: --due-after {instant}\n")
    assert listed(world, "--due-after", instant) == ["c", "d"]
    reschedule(world, dict.fromkeys("abcd", START + 9))
    cut = world.command(*words, "--limit", "3")
    assert len(cut.json_lines()) == 3
    assert cut.err.startswith("there are more: --limit beyond 3, since")
    refused = world.command(*words, "--cursor", "x")
    assert (refused.code, refused.out) == (2, "")
    assert "--cursor: expected --due-after" in refused.err


def test_ls_leaves_out_what_does_not_count(world: World, log: ColdLog) -> None:
    taken, waits = batch(log, "B", "taken"), batch(log, "C", "pulled", "waits")
    batch(log, "D", "still in the store", finished=False)
    pulled = [{"id": "pulled", "batch": "C", "generation": 5}]
    _write(f"{log.root}/pulled=E/part-0.parquet", pa.Table.from_pylist(pulled))
    used = {"taken": (taken,), "pulled": ("pulled=E/part-0.parquet",)}
    log.commit(Commit(kind=HYDRATED, batch="E", at_ms=3, **used))
    assert listed(world) == ["waits"]
    assert log.state().due_before(START) == []
    assert log.state().due_before(START + 1) == [waits]


def test_get_while_a_batch_leaves_the_store_knows_each_envelope_that_is_alive(
    world: World, log: ColdLog
) -> None:
    ids = sorted(f"i{number}" for number in range(20))
    first, moved, *left, ended, last = here = [name for name in ids if not shard_number(name, 2)]
    world.schedule("cold", *ids)
    store, producer = world.store("cold", 0, cold_tier_ms=1 << 40), world.producer()
    store.note("hydrated_until", 1, "first")
    generations = {name: world.record("cold", name)[1].generation for name in ids}
    batch(log, "B", first, *ids, finished=False, generations=generations)  # a row comes twice
    assert producer.reschedule("cold", moved, at=START + 99) == "rescheduled"
    assert producer.cancel("cold", last) == "cancelled"

    def states() -> dict[str, str | None]:
        found = {name: producer.get("cold", name) for name in ids}
        return {name: known and known.state for name, known in found.items()}

    before = dict.fromkeys(ids, "pending") | {last: None}
    assert states() == before
    store.demote("B", 0, [(name, generations[name]) for name in here[:-2]])
    after = before | dict.fromkeys([first, *left], "cold")
    assert states() == after, "those of the other shard have not left"
    assert producer.cancel("cold", moved) == "cancelled"
    assert producer.cancel("cold", first) == "recorded"
    assert producer.cancel("cold", ended) == "cancelled"
    assert states() == after | {moved: None, first: None, ended: None}
    assert world.command("get", "cold", left[-1]).code == 0
    assert listed(world) == []


def test_ls_of_a_tier_that_is_empty_or_absent_is_empty(world: World) -> None:
    assert listed(world) == []
    assert world.command("ls", "plain", "--state", "cold", "--output", "json").out == ""


def test_get_where_files_cannot_be_read_says_which_setting(world: World, log: ColdLog) -> None:
    batch(log, "B", "a")
    next(Path(log.root).rglob("*.parquet")).write_bytes(b"no parquet")
    done = world.command("get", "cold", "a")
    assert done.code == 2
    assert "routes.cold.cold_tier.path: cannot be read" in done.err
