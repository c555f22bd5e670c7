"""Each script: its header, its use of ARGV and its caller agree; the bench times each.

Also under another life, without one, and on a server that a failover made the master. That routes
live and are renewed through every client, `journal/test_epoch.py` and `journal/test_renew.py` show.
"""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from duebridge.bench.meter import CallCounter, Meter
from duebridge.bench.script_times import measure_scripts
from duebridge.errors import OtherLife, RenewalNeeded
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import SHARD_KEYS, Shard
from duebridge.store.server.connection import Connection
from duebridge.store.server.scripts import names, script
from tests.store.every_call import (
    CALLS,
    READING,
    WRITING,
    Asked,
    Asking,
    ask,
    fill_every_state,
    life_of,
)
from tests.support.checkout import ROOT
from tests.support.desk import Desk

STANDARD = {1, 2, 3}  # the clock's, the journal's and the life's, which every script has
SCRIPTS = sorted((ROOT / "lua").glob("*.lua"))
TIMED = {"schedule", "replace", "next", "promote", "claim", "retry", "release", "ack", "bury"}
TIMED |= {"drop", "cancel", "reschedule", "set_aside", "resume", "reclaim", "readdress", "shunt"}


def numbers(text: str, pattern: str) -> set[int]:
    return {int(found) for found in re.findall(pattern, text)}


def documented(path: Path) -> set[int]:
    header = "\n".join(line for line in path.read_text().splitlines() if line.startswith("--"))
    return numbers(header, r"ARGV\[(\d+)\]")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_header_of_a_script_documents_the_arguments_that_it_reads(path: Path) -> None:
    code = re.sub(r"--.*", "", path.read_text())
    used = numbers(code, r"ARGV\[(\d+)\]") | numbers(code, r"up_to\((\d+)\)")
    assert used - STANDARD == documented(path) - STANDARD
    lists = numbers(code, r"arguments\((\d+),")
    assert lists <= {1 + max(documented(path), default=0)}, "a list follows its count"


@pytest.mark.parametrize("name", sorted(CALLS))
def test_call_of_a_script_passes_the_keys_and_arguments_of_its_header(name: str) -> None:
    store = DelayStore(Asking(), Shard("n", "r", 0), has_dead_letter=True, now_ms=lambda: 1)
    with pytest.raises(Asked) as asked:
        CALLS[name](store)
    called, keys, arguments = asked.value.args
    source = (ROOT / "lua" / f"{name}.lua").read_text()
    expected = max(documented(ROOT / "lua" / f"{name}.lua") | STANDARD)
    has_list = "arguments(" in source or re.search(r"ARGV\[\d+\]  number of", source)
    assert (called, len(keys)) == (name, len(SHARD_KEYS))
    assert len(arguments) > expected if has_list else len(arguments) == expected


def test_every_script_has_a_call_and_calls_only_commands_of_literal_names() -> None:
    assert {*CALLS, "open"} == set(names()) == {path.stem for path in SCRIPTS}
    for name in names():
        code = re.sub(r"--.*", "", script(name).source)
        literal = re.findall(r"redis\.call\('[A-Z]+'[,)]", code)
        assert len(literal) == len(re.findall(r"\bredis\.call\b|\bredis\[|\bpcall\b", code)), name


def test_measure_of_scripts_times_each_with_small_and_large_bodies(server: Connection) -> None:
    desk = Desk(server, "bench")
    stage: Any = SimpleNamespace(
        connection=server,
        meter=Meter(server, CallCounter()),
        namespace=lambda: "bench",
        store=lambda _: desk.again(has_dead_letter=False, now_ms=None),
        delete=lambda _: None,
    )
    rows = {row.what: row.figures for row in measure_scripts(stage, 2)}
    assert set(rows) == TIMED | {f"{name} of 256 KiB" for name in TIMED}
    assert all(figures["p50_ms"] > 0 for figures in rows.values())
    found = desk.snapshot()
    assert not found["unack"], "everything that was claimed is settled"
    assert not found["dead"]
    assert len(found["ready"]) + len(found["pending"]) < 10


@pytest.mark.parametrize("name", WRITING)
def test_script_under_another_life_is_refused_and_changes_nothing(desk: Desk, name: str) -> None:
    fill_every_state(desk)
    epoch, shards = life_of(desk)
    for other in (f"{epoch}x:{shards}", f"{epoch}:{shards + 1}", f"{epoch}:", ":", ""):
        with desk.unchanged(), pytest.raises(OtherLife):
            ask(desk, name, other)


@pytest.mark.parametrize("name", WRITING)
def test_script_on_a_shard_without_a_life_is_refused_and_makes_no_key(
    desk: Desk, name: str
) -> None:
    life = life_of(desk).text
    desk.delete()
    for each in (life, ":", ""):
        with pytest.raises(OtherLife):
            ask(desk, name, each)
    assert desk.client.exists(*desk.shard.keys()) == 0


@pytest.mark.parametrize("name", READING)
def test_script_that_only_reads_answers_whatever_the_life(desk: Desk, name: str) -> None:
    ask(desk, name, "another:9")


@pytest.mark.parametrize("name", WRITING)
def test_script_on_another_server_is_refused_and_changes_nothing(desk: Desk, name: str) -> None:
    fill_every_state(desk)
    desk.fail_over()
    with desk.unchanged(), pytest.raises(RenewalNeeded):
        ask(desk, name, life_of(desk).text)


@pytest.mark.parametrize("name", READING)
def test_script_that_only_reads_answers_on_another_server(desk: Desk, name: str) -> None:
    desk.fail_over()
    with desk.unchanged():
        ask(desk, name, life_of(desk).text)


@pytest.mark.parametrize("name", WRITING)
def test_call_on_another_server_renews_once_and_does_what_was_asked(
    desk: Desk, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_every_state(desk)
    desk.fail_over()
    seen: list[str] = []
    monkeypatch.setattr(desk.connection, "observe", lambda name, seconds: seen.append(name))
    store = desk.again(cold_tier_ms=9)
    CALLS[name](store)
    assert seen[:3] == [name, "renew", name]
    CALLS["forget"](store)
    assert seen[3:] == ["forget"]
    desk.is_whole = False  # its clock is not the one that leases were given by
