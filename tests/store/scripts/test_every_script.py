"""Each script: under another life, without one, and on a server that a failover made the master.

That routes live and are renewed through every client, `journal/test_epoch.py` and
`journal/test_renew.py` show.
"""

import pytest

from duebridge.errors import OtherLife, RenewalNeeded
from tests.store.every_call import CALLS, READING, WRITING, ask, fill_every_state, life_of
from tests.support.desk import Desk


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
