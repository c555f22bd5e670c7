"""Each call whose reply is lost after the server ran it: executed once, answered as it was."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from duebridge.errors import StoreUnavailable
from duebridge.ports.source import LogPosition
from duebridge.store.delay_store import DelayStore
from duebridge.store.server.connection import open_connection
from tests.store.conftest import Opened
from tests.support.desk import LEASE_MS, NOW_MS, YEAR_MS, Desk, acks, burial, envelope, retrying
from tests.support.network.proxy import Proxy, proxied
from tests.support.servers import redis_cluster, redis_server

REPEAT_S = 60.0
Lossy = Callable[[], DelayStore]


@pytest.fixture(scope="module", params=["standalone", "cluster"])
def proxy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Proxy, str]]:
    """A proxy before a server, and the URL by which a client reaches it through the proxy."""
    home = tmp_path_factory.mktemp("proxied")
    if request.param == "standalone":
        with redis_server(home) as port, proxied(port) as opened:
            yield opened, f"redis://127.0.0.1:{opened.port}"
    else:
        with announcing_cluster(home) as (opened, url):
            yield opened, url


@contextmanager
def announcing_cluster(home: Path) -> Iterator[tuple[Proxy, str]]:
    """A Cluster whose node names the proxy's port as its own."""
    with redis_cluster(home) as url, proxied(int(url.rsplit(":", 1)[1])) as opened:
        with redis.Redis(port=int(url.rsplit(":", 1)[1])) as node:
            node.config_set("cluster-announce-port", opened.port)
        yield opened, f"redis+cluster://127.0.0.1:{opened.port}"


@pytest.fixture
def desk(proxy: tuple[Proxy, str], open_desk: Opened) -> Iterator[Desk]:
    connection = open_connection(proxy[1], socket_timeout_s=30.0)
    connection.load_scripts()
    yield open_desk(connection)
    connection.close()


@pytest.fixture
def lossy(proxy: tuple[Proxy, str], desk: Desk) -> Lossy:
    """The desk's store, set up so that the reply to the next call of a script is lost."""

    def lose_next() -> DelayStore:
        proxy[0].lose_reply_to(b"EVALSHA")
        return desk.again(repeat_for_s=REPEAT_S)

    return lose_next


@pytest.fixture(autouse=True)
def one_reply_was_lost(proxy: tuple[Proxy, str]) -> Iterator[None]:
    before = proxy[0].lost
    yield
    assert proxy[0].lost == before + 1


@pytest.fixture
def open_desk() -> Opened:
    return lambda on, **options: Desk(on, "lost-replies", **options)


@pytest.fixture(autouse=True)
def emptied(desk: Desk) -> Iterator[None]:
    desk.delete()
    desk.open()
    yield
    desk.check()


def test_claim_is_never_repeated(desk: Desk, lossy: Lossy) -> None:
    desk.ready("a", "b")
    with pytest.raises(StoreUnavailable):
        lossy().claim(1, LEASE_MS)
    assert desk.snapshot()["meta"][b"claims"] == b"1"
    assert desk.store.next().unack == 1
    assert desk.run_out().ready == 2
    assert desk.flight_of("a").expiries == 1


def test_shunt_is_never_repeated(desk: Desk, lossy: Lossy) -> None:
    desk.dead("a", "b")
    before = int(desk.snapshot()["meta"][b"claims"])
    with pytest.raises(StoreUnavailable):
        lossy().shunt(1, LEASE_MS)
    assert int(desk.snapshot()["meta"][b"claims"]) == before + 1
    assert desk.store.next().first_dead_ms == desk.clock()


Arrange = Callable[[Desk], Any]
OTHER = [envelope("a", "9s"), envelope("b", "9s")]
PLACE = LogPosition("log", 0, 7)
ANSWERED: dict[
    str, tuple[Arrange, Callable[[DelayStore], Any], Any, list[tuple[str, list[str]]]]
] = {
    "schedule": (
        lambda desk: None,
        lambda store: store.schedule([envelope("a")], max_delay_ms=YEAR_MS),
        [("accepted", NOW_MS + 1000)],
        [("accepted", ["a"])],
    ),
    "replace": (
        lambda desk: desk.pending("a"),
        lambda store: store.schedule(OTHER, max_delay_ms=YEAR_MS, mode="replace"),
        [("replaced", NOW_MS + 9000), ("accepted", NOW_MS + 9000)],
        [("accepted", ["a"]), ("accepted", ["b"]), ("replaced", ["a"])],
    ),
    "cancel": (
        lambda desk: desk.pending("a"),
        lambda store: store.cancel("a"),
        "cancelled",
        [("accepted", ["a"]), ("cancelled", ["a"])],
    ),
    "reschedule": (
        lambda desk: desk.pending("a"),
        lambda store: store.reschedule("a", "+70", YEAR_MS),
        ("rescheduled", NOW_MS + 70),
        [("accepted", ["a"]), ("rescheduled", ["a"])],
    ),
    "schedule of a place": (
        lambda desk: None,
        lambda store: store.schedule(
            [envelope("a"), envelope("b", "9s")], max_delay_ms=5000, places=[PLACE, PLACE]
        ),
        [("accepted", NOW_MS + 1000), ("duplicate", 0)],
        [("accepted", ["a"])],
    ),
    "cancel of a place": (
        lambda desk: desk.pending("a"),
        lambda store: store.cancel("a", PLACE),
        "cancelled",
        [("accepted", ["a"]), ("cancelled", ["a"])],
    ),
    "cancel of a dead one's place": (
        lambda desk: desk.dead("a"),
        lambda store: store.cancel("a", PLACE),
        "dead",
        [("accepted", ["a"]), ("dead", ["a"])],
    ),
    "drop": (
        lambda desk: desk.dead("a"),
        lambda store: store.drop(["a"]),
        ["unknown"],
        [("accepted", ["a"]), ("dead", ["a"]), ("dropped", ["a"])],
    ),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_call_is_repeated_and_done_once(desk: Desk, lossy: Lossy, name: str) -> None:
    arrange, call, answer, journal = ANSWERED[name]
    arrange(desk)
    assert call(lossy()) == answer
    assert desk.journal() == journal


SETTLED: dict[str, tuple[Callable[[DelayStore, bytes], Any], str | None, tuple[int, int]]] = {
    "ack": (lambda store, token: store.ack(acks(token, "a")), None, (0, 0)),
    "retry": (lambda store, token: store.retry(token, [retrying("a")]), "retry", (1, 1)),
    "release": (lambda store, token: store.release(token, ["a"]), "ready", (0, 0)),
    "bury": (lambda store, token: store.bury(token, [burial("a")]), "dead", (1, 0)),
}


@pytest.mark.parametrize("name", SETTLED)
def test_settle_is_repeated_says_so_and_counts_once(desk: Desk, lossy: Lossy, name: str) -> None:
    call, state, counts = SETTLED[name]
    token = desk.unack("a").token
    settled = call(lossy(), token)
    assert (settled.stale, settled.repeated) == (["a"], True)
    flight = desk.flight_of("a")
    assert (desk.state_of("a"), flight.failures, flight.retries) == (state, *counts)


def test_promote_is_repeated_and_moves_nothing_twice(desk: Desk, lossy: Lossy) -> None:
    desk.pending("a")
    desk.clock.advance(1000)
    assert lossy().promote()[0].ready == 1


def test_reclaim_is_repeated_and_counts_once(desk: Desk, lossy: Lossy) -> None:
    desk.unack("a")
    desk.clock.advance(LEASE_MS)
    lossy().reclaim()
    assert desk.flight_of("a").expiries == 1
