"""`duebridge ls`: every envelope of a route once, over shards and pages, within a window."""

import json
from collections.abc import Iterator

import pytest

from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.transitions import Retry
from tests.support.command import Command, embedded_command, kill_due

AT = 1_893_456_000_000  # 2030


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with embedded_command(tmp_path_factory.mktemp("cli")) as command:
        command.file.write_text(
            command.file.read_text().replace("max_delay: 30d", "shards: 1")
            + "defaults: {max_delay: 9999d}\n"
        )
        yield command


def send(duebridge: Command, route: str, dues_ms: dict[str, int]) -> None:
    lines = [
        json.dumps({"body": "x", "id": name, "at": due_ms}).encode()
        for name, due_ms in dues_ms.items()
    ]
    assert duebridge("send", route, "-", "--jsonl", stdin=b"\n".join(lines)).code == 0


def listed(duebridge: Command, *words: str) -> tuple[list[str], str | None]:
    """Return ids and cursor of one page."""
    shown = duebridge("ls", *words, "--output", "json")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.json_lines()
    cursor = lines.pop()["cursor"] if lines and "cursor" in lines[-1] else None
    return [each["id"] for each in lines], cursor


def test_ls_pages_of_three_shards_have_each_once_in_the_order_of_due(duebridge: Command) -> None:
    dues_ms = {f"id-{number:03d}": AT + number // 10 for number in range(100)}  # many are equal
    send(duebridge, "invoices", dues_ms)
    found, cursor = listed(duebridge, "invoices", "--limit", "30")
    while cursor:
        page, cursor = listed(duebridge, "invoices", "--limit", "30", "--cursor", cursor)
        assert page
        found += page
    assert sorted(found) == sorted(dues_ms)
    assert [dues_ms[each] for each in found] == sorted(dues_ms.values())


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
    store.retry(
        claim.token,
        [
            Retry(
                id=claim.ids[0],
                delay_ms=3_600_000,
                is_failure=True,
                is_unsure=False,
                error="Away\nno answer",
            )
        ],
    )
    connection.close()
    states = {}
    for state in ("pending", "ready", "unack", "retry", "dead"):
        states[state], _ = listed(duebridge, "reminders", "--state", state)
    assert [len(states[state]) for state in states] == [1, 1, 3, 1, 4]
    everything, _ = listed(duebridge, "reminders")
    assert sorted(everything) == sorted(each for found in states.values() for each in found)
    assert everything[-4:] == states["dead"]
    table = duebridge("ls", "reminders", "--state", "retry").out.splitlines()
    assert table[0].split()[:3] == ["id", "state", "due"]
    assert "Away: no answer" in table[1]
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
    connection.close()
    assert listed(duebridge, "reminders", "--state", "ready") == (["suspect"], None)


def test_ls_table_ends_with_the_cursor_on_standard_error(duebridge: Command) -> None:
    send(duebridge, "reminders", {"a": AT, "b": AT + 1})
    shown = duebridge("ls", "reminders", "--limit", "1")
    assert len(shown.out.splitlines()) == 2
    assert shown.err.startswith("there are more: --cursor ")
    following = duebridge("ls", "reminders", "--cursor", shown.err.split()[-1])
    assert following.out.splitlines()[1].split()[0] == "b"
    assert following.err == ""


def test_ls_page_is_read_in_calls_that_are_bounded(duebridge: Command) -> None:
    send(duebridge, "reminders", {f"id-{number}": AT + number for number in range(5_000)})
    connection = duebridge.connection()
    connection.client.config_resetstat()
    listed(duebridge, "reminders", "--limit", "50")
    calls = connection.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    connection.close()
    assert calls < 30


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["reminders", "--cursor", "no"], "cursor: expected one that ls printed; got 'no'"),
        (["reminders", "--state", "gone"], "'gone' is not one of 'pending', 'ready', 'unack'"),
        (["nothing"], "(invoices, reminders); got 'nothing'"),
        (["reminders", "--due-before", "soon"], "--due-before: expected RFC 3339"),
        (["reminders", "--due-after", "1893456000"], "looks like seconds"),
        (["reminders", "--limit", "0"], "--limit"),
    ],
)
def test_ls_of_what_is_not_exits_2(duebridge: Command, words: list[str], expected: str) -> None:
    refused = duebridge("ls", *words)
    assert (refused.code, refused.out) == (2, "")
    assert expected in refused.err
    assert len(refused.err.splitlines()) == 1


def test_ls_cursor_of_another_list_is_refused(duebridge: Command) -> None:
    send(duebridge, "reminders", {"a": AT, "b": AT})
    _, cursor = listed(duebridge, "reminders", "--limit", "1")
    for words in (["invoices"], ["reminders", "--state", "pending"]):
        refused = duebridge("ls", *words, "--cursor", str(cursor))
        assert refused.code == 2
        assert "got one of route reminders, state any" in refused.err
