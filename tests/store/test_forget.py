import pytest

from tests.store.desk import Desk, envelope


def remember(desk: Desk, *ids: str, keep: str = "1m") -> None:
    """Leave one memory an id and another for its cancel's answer."""
    for name in ids:
        desk.pending(envelope(name, remember=keep))
        assert desk.store.cancel(name) == "cancelled"


def test_forget_drops_what_is_over_and_nothing_else(desk: Desk) -> None:
    remember(desk, "a")
    remember(desk, "b", keep="2m")
    desk.clock.advance(59_999)
    before = desk.snapshot()
    assert desk.store.forget()[1] == 0
    assert desk.snapshot() == before
    desk.clock.advance(1)
    poll, forgotten = desk.store.forget()
    assert (forgotten, poll.first_forget_ms) == (3, desk.clock() + 60_000)
    assert list(desk.snapshot()["memory"]) == [b"rb"]
    desk.check()


def test_forget_of_a_memory_that_was_renewed_keeps_it(desk: Desk) -> None:
    remember(desk, "a")
    desk.clock.advance(30_000)
    remember_again = envelope("a", body=b"other", remember="1m")
    desk.pending(remember_again)
    desk.store.cancel("a")
    desk.clock.advance(30_000)
    desk.store.forget()
    assert b"ra" in desk.snapshot()["memory"]
    assert [each.status for each in desk.schedule(remember_again)] == ["duplicate"]


@pytest.mark.parametrize("limit", [0, -1, 2])
def test_forget_drops_no_more_than_asked(desk: Desk, limit: int) -> None:
    remember(desk, "a", "b")
    desk.clock.advance(60_000)
    assert desk.store.forget(limit)[1] == max(0, limit)
    desk.check()


def test_forget_drops_at_most_1000_a_call(desk: Desk) -> None:
    ids = [f"{n:04d}" for n in range(700)]
    desk.pending(*[envelope(name, remember="1m") for name in ids])
    for name in ids:
        desk.run("cancel", name, f"call-{name}", 60_000, 0)
    desk.clock.advance(60_000)
    assert [desk.store.forget(5000)[1] for _ in "abc"] == [1000, 400, 0]
    desk.check()


def test_forget_of_nothing_makes_no_key(desk: Desk) -> None:
    assert desk.store.forget()[1] == 0
    assert desk.client.exists(desk.key("memory"), desk.key("forget"), desk.key("meta")) == 0


def test_memory_is_over_at_its_time_even_before_it_is_forgotten(desk: Desk) -> None:
    remember(desk, "a")
    desk.clock.advance(60_000)
    assert [each.status for each in desk.schedule(envelope("a", remember="1m"))] == ["accepted"]
