"""stats, ls and events: what is in a store and what happened, page by page."""

import json
import signal
from contextlib import closing
from typing import Any

import pytest

from duebridge.config.load import load_config
from duebridge.durations import format_instant
from duebridge.producer import Producer
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.wire.transitions import Retry
from duebridge.store.workers import HeldTarget, WorkerRecord, Workers
from tests.support.command import CONFIG, Command, kill_due

AT = 1_893_456_000_000  # 2030
STATS = [
    "route", "pending", "ready", "unack", "retry", "dead", "oldest_due_age_ms", "held_since_ms",
    "shards",
]  # fmt: skip


@pytest.fixture
def duebridge(duebridge: Command) -> Command:
    """The command, with routes for instants of any year."""
    text = CONFIG.format(url=duebridge.url).replace(", max_delay: 30d", "")
    duebridge.file.write_text(text + "defaults: {max_delay: 9999d}\n")
    return duebridge


def send(duebridge: Command, route: str, dues_ms: dict[str, int]) -> None:
    lines = [json.dumps({"body": "x", "id": name, "at": at}) for name, at in dues_ms.items()]
    assert duebridge("send", route, "-", "--jsonl", stdin="\n".join(lines).encode()).code == 0


# stats


def test_stats_as_json_is_exactly_the_documented_object(duebridge: Command) -> None:
    duebridge("send", "invoices", "hello", "--delay", "1h")
    duebridge("send", "reminders", "hello", "--at", "2020-01-31T09:00:00Z")
    stats = duebridge("stats", "--output", "json")
    assert stats.code == 0
    assert set(stats.json()) == {"routes"}
    reminders, invoices = stats.json()["routes"]
    assert list(reminders) == STATS
    assert (reminders["route"], reminders["pending"], reminders["shards"]) == ("reminders", 1, 1)
    assert (invoices["route"], invoices["pending"], invoices["shards"]) == ("invoices", 1, 3)
    assert reminders["oldest_due_age_ms"] > 0


def test_stats_marks_a_route_that_left_the_configuration(duebridge: Command) -> None:
    duebridge("send", "invoices", "hello", "--delay", "1h")
    duebridge.file.write_text(duebridge.file.read_text().replace("  invoices:", "  # invoices:"))
    reminders, invoices = duebridge("stats", "--output", "json").json()["routes"]
    assert "configured" not in reminders
    assert (invoices["configured"], invoices["pending"], invoices["shards"]) == (False, 1, 3)
    table = duebridge("stats").out.splitlines()
    assert not table[1].endswith("not in the configuration")
    assert table[2].endswith("not in the configuration")


def test_stats_shows_a_failing_target_with_its_error_and_what_waits(
    duebridge: Command, client: Any
) -> None:
    duebridge("send", "reminders", "hello", "--delay", "1h")
    held = HeldTarget("here", "here:reminders", "312 NO_ROUTE", AT, True, 0, ("reminders",))
    with closing(duebridge.connection()) as connection:
        record = WorkerRecord("id", "node-7", 42, "1.0", 1, 1, held=(held,))
        Workers(connection, "duebridge").write(record)
    reminders, invoices = duebridge("stats", "--output", "json").json()["routes"]
    assert reminders["held_since_ms"] == AT
    assert reminders["held"] == [
        {"target": "here:reminders", "error": "312 NO_ROUTE", "since_ms": AT, "waiting": 0,
         "workers": 1, "at_fault": True}
    ]  # fmt: skip
    assert invoices["held_since_ms"] == 0
    assert "held" not in invoices
    assert "2030-01-01" in (line := duebridge("stats").out.splitlines()[1])
    assert line.endswith("target here:reminders: 312 NO_ROUTE")


def test_stats_of_a_held_target_fit_a_terminal_of_80_columns(
    duebridge: Command, client: Any
) -> None:
    duebridge("send", "reminders", "hello", "--at", "2020-01-31T09:00:00Z")
    error = "UnknownTopicOrPartitionError: this server does not host this topic-partition\x1b[31m"
    with closing(duebridge.connection()) as connection:
        workers = Workers(connection, "duebridge")
        since_ms = workers.now_ms() - 3_660_000
        held = HeldTarget("here", "here:reminders", error, since_ms, True, 0, ("reminders",))
        workers.write(WorkerRecord("id", "node-7", 42, "1.0", 1, 1, held=(held,)))
    code, shown = duebridge.on_terminal("stats", COLUMNS="80", NO_COLOR="1")
    assert code == 0
    header, reminders, invoices, *note = shown.decode().splitlines()
    assert max(map(len, (header, reminders, invoices, *note))) <= 80
    assert header.split()[6:] == ["oldest", "due", "held", "for", "shards"]
    assert reminders.split()[:6] == ["reminders", "1", "0", "0", "0", "0"]
    assert reminders.split()[7:] == ["1h1m", "1"]
    assert invoices.split() == ["invoices", *"00000", "-", "-", "3"]
    assert len(note) == 2
    assert " ".join(note).startswith("reminders: target here:reminders: UnknownTopic")
    assert note[-1].endswith("topic-partition\\x1b[31m")
    _, wide = duebridge.on_terminal("stats", COLUMNS="200", NO_COLOR="1")
    assert len(wide.splitlines()) == 3


def test_stats_of_an_unused_route_opens_no_route(duebridge: Command) -> None:
    assert duebridge("stats").code == 0
    duebridge.file.write_text(duebridge.file.read_text().replace("shards: 3", "shards: 2"))
    assert duebridge("send", "invoices", "hello", "--delay", "1h").code == 0


@pytest.mark.parametrize(("env", "is_colored"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_table_on_a_terminal_is_colored_unless_no_color(
    duebridge: Command, env: dict[str, str], is_colored: bool
) -> None:
    code, out = duebridge.on_terminal("stats", **env)
    assert code == 0
    assert b"reminders" in out
    assert (b"\x1b[" in out) is is_colored
    assert "\x1b" not in duebridge("stats", FORCE_COLOR="1").out


@pytest.mark.parametrize("output", ["json", "table"])
def test_stats_watch_prints_rounds_until_ctrl_c(duebridge: Command, output: str) -> None:
    process = duebridge.start("stats", "--watch", "--every", "100ms", "--output", output)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(8)]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    if output == "json":
        rounds = [[each["route"] for each in json.loads(line)["routes"]] for line in lines]
        assert rounds == [["reminders", "invoices"]] * 8
    else:
        first_words = [line.split()[:1] for line in lines]
        assert first_words == 2 * [[b"route"], [b"reminders"], [b"invoices"], []]


def test_stats_histogram_plots_what_falls_due_in_80_columns(duebridge: Command) -> None:
    duebridge("send", "reminders", "x", "--at", "2020-01-31T09:00:00Z")
    for number in range(12):
        duebridge("send", "invoices", "x", "--delay", "30m", "--id", f"{number}")
    duebridge("send", "reminders", "x", "--delay", "20h")
    plot = duebridge("stats", "--histogram").out.splitlines()
    assert plot[0] == "UTC    pending  retry  due in the next hour: pending █, retry ░"
    assert sum(int(line.split()[1]) for line in plot[1:-1]) == 12
    assert max(len(line) for line in plot) == 80
    assert plot[-1].startswith("due already: 1, the oldest for ")
    ascii_only = {"PYTHONPATH": "", "PYTHONIOENCODING": "ascii"}
    days = duebridge("stats", "--histogram", "--horizon", "day", **ascii_only).out
    assert sum(int(line.split()[1]) for line in days.splitlines()[1:-1]) == 13
    assert days.isascii()


def test_stats_histogram_as_json_is_the_documented_object_beside_the_routes(
    duebridge: Command,
) -> None:
    duebridge("send", "reminders", "x", "--delay", "3d")
    words = ("stats", "reminders", "--histogram", "--horizon", "week", "--output", "json")
    found = duebridge(*words).json()
    assert [each["route"] for each in found["routes"]] == ["reminders"]
    assert found["horizon"] == "week"
    buckets = found["histogram"]
    assert list(buckets[0]) == ["from_ms", "to_ms", "pending", "retry"]
    assert [each["pending"] for each in buckets if each["pending"]] == [1]


# ls


def listed(duebridge: Command, *words: str) -> tuple[list[str], str | None]:
    """Return ids and cursor of one page."""
    shown = duebridge("ls", *words, "--output", "json")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.json_lines()
    cursor = lines.pop()["cursor"] if lines and "cursor" in lines[-1] else None
    return [each["id"] for each in lines], cursor


def test_ls_within_a_window_takes_both_ends_and_goes_on(duebridge: Command) -> None:
    send(duebridge, "invoices", {f"id-{number}": AT + number for number in range(9)})
    words = ("invoices", "--due-after", str(AT + 2), "--due-before", str(AT + 5))
    assert listed(duebridge, *words) == (["id-2", "id-3", "id-4", "id-5"], None)
    first, cursor = listed(duebridge, *words, "--state", "pending", "--limit", "3")
    assert cursor is not None
    again = listed(duebridge, *words, "--state", "pending", "--cursor", cursor)
    assert (first, again) == (["id-2", "id-3", "id-4"], (["id-5"], None))


def test_ls_within_a_time_from_now_asks_the_stores_clock(duebridge: Command) -> None:
    for delay in ("1h", "3h"):
        duebridge("send", "reminders", "x", "--delay", delay, "--id", delay)
    assert listed(duebridge, "reminders", "--due-before", "2h")[0] == ["1h"]
    assert listed(duebridge, "reminders", "--due-after", "2h")[0] == ["3h"]


def test_ls_by_state_shows_that_state_and_without_one_all(duebridge: Command) -> None:
    send(duebridge, "reminders", {f"past-{number}": 1_000_000_000_000 for number in range(4)})
    kill_due(duebridge, 4, "TooLarge\nbroke the limit")
    send(duebridge, "reminders", {"future": AT, **{f"due-{number}": 0 for number in range(5)}})
    connection = duebridge.connection()
    store = DelayStore(connection, Shard("duebridge", "reminders", 0))
    store.promote()
    claim = store.claim(4, 600_000)
    retry = Retry(
        id=claim.ids[0], delay_ms=3_600_000, is_failure=True, is_unsure=False, error="Away\nno one"
    )
    store.retry(claim.token, [retry])
    connection.close()
    states = {
        state: listed(duebridge, "reminders", "--state", state)[0]
        for state in ("pending", "ready", "unack", "retry", "dead")
    }
    assert [len(states[state]) for state in states] == [1, 1, 3, 1, 4]
    everything, _ = listed(duebridge, "reminders")
    assert sorted(everything) == sorted(each for found in states.values() for each in found)
    assert everything[-4:] == states["dead"]
    table = duebridge("ls", "reminders", "--state", "retry").out.splitlines()
    assert table[0].split()[:3] == ["id", "state", "due"]
    assert "Away: no one" in table[1]
    page, cursor = listed(duebridge, "reminders", "--limit", "8")
    rest = listed(duebridge, "reminders", "--cursor", str(cursor))
    assert [*page, *rest[0]] == everything


def test_ls_of_ready_has_those_whose_leases_ran_out_twice(duebridge: Command) -> None:
    send(duebridge, "reminders", {"suspect": 0})
    connection = duebridge.connection()
    now_ms = [AT]
    store = DelayStore(connection, Shard("duebridge", "reminders", 0), now_ms=lambda: now_ms[0])
    store.promote()
    for _ in range(2):
        assert store.claim(1, 1).ids == ["suspect"]
        now_ms[0] += 1
        store.reclaim()
    assert store.next().suspect == 1
    send(duebridge, "reminders", {"sound": 1})
    store.promote()
    connection.close()
    assert listed(duebridge, "reminders", "--state", "ready") == (["suspect", "sound"], None)
    words = ("reminders", "--state", "suspect")
    assert listed(duebridge, *words) == (["suspect"], None)
    assert duebridge("stats", "--output", "json").json()["routes"][0]["suspects"] == 1


def test_ls_table_ends_with_the_cursor_on_standard_error(duebridge: Command) -> None:
    send(duebridge, "reminders", {"a": AT, "b": AT + 1})
    shown = duebridge("ls", "reminders", "--limit", "1")
    assert len(shown.out.splitlines()) == 2
    assert shown.err.startswith("there are more: --cursor ")
    following = duebridge("ls", "reminders", "--cursor", shown.err.split()[-1])
    assert following.out.splitlines()[1].split()[0] == "b"
    assert following.err == ""


def test_ls_page_is_read_in_calls_that_are_bounded(duebridge: Command, client: Any) -> None:
    send(duebridge, "reminders", {f"id-{number}": AT + number for number in range(5_000)})
    client.config_resetstat()
    listed(duebridge, "reminders", "--limit", "50")
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] < 30


def test_ls_cursor_of_another_list_is_refused(duebridge: Command) -> None:
    send(duebridge, "reminders", {"a": AT, "b": AT})
    _, cursor = listed(duebridge, "reminders", "--limit", "1")
    for words in (["invoices"], ["reminders", "--state", "pending"]):
        refused = duebridge("ls", *words, "--cursor", str(cursor))
        assert refused.code == 2
        assert "got one of route reminders, state any" in refused.err


# events


def test_events_tell_a_life_in_the_order_of_time(duebridge: Command) -> None:
    duebridge("send", "reminders", "x", "--delay", "0s", "--id", "a")
    kill_due(duebridge, 1, "TooLarge\nbroke the limit")
    duebridge("dead", "replay", "reminders", "a", "--delay", "1h")
    duebridge("cancel", "reminders", "a")
    duebridge("send", "invoices", "x", "--delay", "1h", "--id", "b")
    everything = duebridge("events", "--output", "json")
    assert (everything.code, everything.err) == (0, "")
    events = everything.json_lines()
    assert [(each["kind"], each["id"]) for each in events] == [
        ("accepted", "a"), ("dead", "a"), ("replayed", "a"), ("cancelled", "a"), ("accepted", "b"),
    ]  # fmt: skip
    assert events[1] == {
        "kind": "dead", "at_ms": events[1]["at_ms"], "route": "reminders", "shard": 0, "id": "a",
        "due_at_ms": events[0]["due_at_ms"], "attempt": 1, "reason": "too_large",
        "error_class": "TooLarge", "error_message": "broke the limit", "counted": True,
    }  # fmt: skip
    assert [each["at_ms"] for each in events] == sorted(each["at_ms"] for each in events)
    of_route = duebridge("events", "reminders", "--limit", "2").out.splitlines()
    kinds = [line.split()[1:4] for line in of_route]
    assert kinds == [["replayed", "reminders", "a"], ["cancelled", "reminders", "a"]]


def test_events_of_a_retry_say_whether_it_counted_and_when_the_next_try_is(
    duebridge: Command,
) -> None:
    send(duebridge, "reminders", {"counted": 0, "free": 0})
    with closing(duebridge.connection()) as connection:
        store = DelayStore(connection, Shard("duebridge", "reminders", 0))
        store.promote()
        token = store.claim(2, 30_000).token
        common: dict[str, Any] = {"delay_ms": 60_000, "is_unsure": False, "error": "Away\nno one"}
        retries = [
            Retry(id=each, is_failure=each == "counted", **common) for each in ("counted", "free")
        ]
        store.retry(token, retries)
    told = {each["id"]: each for each in duebridge("events", "--output", "json").json_lines()[2:]}
    assert (told["counted"]["counted"], told["free"]["counted"]) == (True, False)
    lines = duebridge("events").out.splitlines()[2:]
    for line in lines:
        name = line.split()[3]
        next_at = format_instant(told[name]["next_at_ms"])
        counts = "counted" if name == "counted" else "not counted"
        assert line.endswith(f"  attempt 1  Away: no one  {counts}  next try by {next_at}")


def test_events_since_begins_there_and_limit_keeps_the_newest(duebridge: Command) -> None:
    send(duebridge, "invoices", {f"{number}": AT for number in range(1_500)})
    assert len(duebridge("events").out.splitlines()) == 100
    assert len(duebridge("events", "--since", "1h").out.splitlines()) == 1_500
    assert len(duebridge("events", "--since", "1h", "--limit", "7").out.splitlines()) == 7
    assert duebridge("events", "--since", "2126-01-31T09:00:00Z") == (0, "", "")
    assert duebridge("events", "--limit", "0") == (0, "", "")


def test_events_of_commands_name_who_ran_them_and_those_of_programs_nobody(
    duebridge: Command,
) -> None:
    for number, name in enumerate(("a", "b", "c")):
        duebridge(
            "send", "reminders", "x", "--delay", "1h", "--id", name, DUEBRIDGE_ACTOR=f"u{number}"
        )
    with closing(Producer(load_config(duebridge.file), duebridge.connection())) as producer:
        producer.cancel("reminders", "a")
    duebridge("cancel", "reminders", "b", DUEBRIDGE_ACTOR="ada\x1b[1m")
    duebridge("reschedule", "reminders", "c", "--delay", "2h", DUEBRIDGE_ACTOR="é" * 99)
    events = duebridge("events", "reminders", "--output", "json").json_lines()
    assert [(each["kind"], each.get("by")) for each in events] == [
        ("accepted", "u0"),
        ("accepted", "u1"),
        ("accepted", "u2"),
        ("cancelled", None),
        ("cancelled", "ada\x1b[1m"),
        ("rescheduled", "é" * 64),
    ]
    shown = duebridge("events", "reminders").out
    assert "by u0\n" in shown
    assert "\x1b" not in shown
