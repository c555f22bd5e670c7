"""Each call whose reply is lost after the server ran it: executed once, answered as it was."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from duebridge.errors import StoreUnavailable
from duebridge.ports.publisher import Reason
from duebridge.store.connection import open_connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.transitions import Burial, Retry
from tests.store.conftest import Opened
from tests.support.desk import LEASE_MS, NOW_MS, YEAR_MS, Desk, envelope
from tests.support.proxy import Proxy, proxied
from tests.support.servers import redis_cluster, redis_server

REPEAT_S = 10.0


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


class announcing_cluster:  # noqa: N801 - used as a context manager
    """A Cluster whose node names the proxy's port as its own."""

    def __init__(self, home: Path) -> None:
        self._cluster = redis_cluster(home)

    def __enter__(self) -> tuple[Proxy, str]:
        port = int(self._cluster.__enter__().rsplit(":", 1)[1])
        self._proxy = Proxy(port)
        with redis.Redis(port=port) as node:
            node.config_set("cluster-announce-port", self._proxy.port)
        return self._proxy, f"redis+cluster://127.0.0.1:{self._proxy.port}"

    def __exit__(self, *raised: object) -> None:
        self._proxy.close()
        self._cluster.__exit__(None, None, None)


@pytest.fixture
def desk(proxy: tuple[Proxy, str], open_desk: Opened) -> Iterator[Desk]:
    connection = open_connection(proxy[1], socket_timeout_s=2.0)
    connection.load_scripts()
    yield open_desk(connection)
    connection.close()


@pytest.fixture
def lossy(proxy: tuple[Proxy, str], desk: Desk):
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


@pytest.fixture(autouse=True, scope="module")
def connection() -> None:
    """These tests bring servers of their own."""


@pytest.fixture
def open_desk() -> Opened:
    return lambda on, **options: Desk(on, "lost-replies", **options)


@pytest.fixture(autouse=True)
def emptied(desk: Desk) -> Iterator[None]:
    desk.delete()
    yield
    desk.check()


def test_claim_is_never_repeated(desk: Desk, lossy) -> None:
    desk.ready("a", "b")
    with pytest.raises(StoreUnavailable):
        lossy().claim(1, LEASE_MS)
    assert desk.snapshot()["meta"][b"claims"] == b"1"
    assert desk.store.next().unack == 1
    assert desk.run_out().ready == 2
    assert desk.flight_of("a").expiries == 1


def test_shunt_is_never_repeated(desk: Desk, lossy) -> None:
    desk.dead("a", "b")
    before = int(desk.snapshot()["meta"][b"claims"])
    with pytest.raises(StoreUnavailable):
        lossy().shunt(1, LEASE_MS)
    assert int(desk.snapshot()["meta"][b"claims"]) == before + 1
    assert desk.store.next().first_dead_ms == desk.clock()


def test_schedule_is_repeated_and_answers_as_it_did(desk: Desk, lossy) -> None:
    assert lossy().schedule([envelope("a")], max_delay_ms=YEAR_MS) == [("accepted", NOW_MS + 1000)]
    assert desk.journal() == [("accepted", ["a"])]


def test_schedule_with_replace_is_repeated_and_answers_as_it_did(desk: Desk, lossy) -> None:
    desk.pending("a")
    other = [envelope("a", "9s"), envelope("b", "9s")]
    answers = lossy().schedule(other, max_delay_ms=YEAR_MS, replace=True)
    assert answers == [("replaced", NOW_MS + 9000), ("accepted", NOW_MS + 9000)]
    assert desk.journal() == [("accepted", ["a"]), ("accepted", ["b"]), ("replaced", ["a"])]


def test_cancel_is_repeated_and_answers_as_it_did(desk: Desk, lossy) -> None:
    desk.pending("a")
    assert lossy().cancel("a") == "cancelled"
    assert desk.journal()[1:] == [("cancelled", ["a"])]


def test_reschedule_is_repeated_and_answers_as_it_did(desk: Desk, lossy) -> None:
    desk.pending("a")
    assert lossy().reschedule("a", "+70", YEAR_MS) == ("rescheduled", NOW_MS + 70)
    assert desk.journal()[1:] == [("rescheduled", ["a"])]


def test_ack_is_repeated_and_says_so(desk: Desk, lossy) -> None:
    claim = desk.unack("a")
    settled = lossy().ack(claim.token, ["a"])
    assert (settled.stale, settled.repeated) == (["a"], True)
    assert desk.journal()[1:] == [("delivered", ["a"])]


def test_retry_is_repeated_and_counts_once(desk: Desk, lossy) -> None:
    claim = desk.unack("a")
    settled = lossy().retry(
        claim.token, [Retry(id="a", delay_ms=9, is_failure=True, is_unsure=False, error="")]
    )
    assert (settled.stale, settled.repeated) == (["a"], True)
    assert (desk.flight_of("a").failures, desk.flight_of("a").retries) == (1, 1)


def test_release_is_repeated_and_changes_nothing_more(desk: Desk, lossy) -> None:
    claim = desk.unack("a")
    assert lossy().release(claim.token, ["a"]).repeated
    assert desk.state_of("a") == "ready"


def test_bury_is_repeated_and_counts_once(desk: Desk, lossy) -> None:
    claim = desk.unack("a")
    assert (
        lossy()
        .bury(
            claim.token,
            [Burial(id="a", reason=Reason.INVALID, is_failure=True, is_unsure=False, error="")],
        )
        .repeated
    )
    assert desk.flight_of("a").failures == 1
    assert desk.journal()[1:] == [("dead", ["a"])]


def test_promote_is_repeated_and_moves_nothing_twice(desk: Desk, lossy) -> None:
    desk.pending("a")
    desk.clock.advance(1000)
    assert lossy().promote()[0].ready == 1


def test_reclaim_is_repeated_and_counts_once(desk: Desk, lossy) -> None:
    desk.unack("a")
    desk.clock.advance(LEASE_MS)
    lossy().reclaim()
    assert desk.flight_of("a").expiries == 1


def test_drop_is_repeated_and_journalled_once(desk: Desk, lossy) -> None:
    desk.dead("a")
    assert lossy().drop(["a"]) == ["unknown"]
    assert desk.journal()[-1] == ("dropped", ["a"])


def test_next_is_repeated(desk: Desk, lossy) -> None:
    desk.pending("a")
    assert lossy().next().pending == 1
