"""Any reply of the store is taken or is a `StoreError`, and a worker goes on after it."""

import itertools
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from threading import Event
from typing import Any, NamedTuple
from unittest import mock

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from duebridge.admin.operator import Operator
from duebridge.config.models import Config
from duebridge.errors import StoreError
from duebridge.ports.publisher import Reason
from duebridge.producer import Producer
from duebridge.store.connection import Connection, open_connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.transitions import Burial, Retry
from duebridge.store.wakeup import WakeListener
from tests.acceptance.floor import Floor
from tests.fuzz import party
from tests.fuzz.budget import drawn, fuzz
from tests.fuzz.configurations import SECRET
from tests.fuzz.lookout import fuzz_config
from tests.fuzz.replies import (
    Parrot,
    Spoiler,
    SpoilingProxy,
    Spoilt,
    Tampered,
    changed,
    spoilers,
    unspoilt,
)
from tests.store.desk import Desk, envelope
from tests.store.proxy import TICK_S
from tests.store.servers import redis_server, wait_until

TOKEN = bytes(range(12))
# Only what hangs takes so long, on a slow machine too: the proxy ends what it has spoilt.
HANGS_S = 60.0
TURN_WITHIN_S = 30.0
LISTENER_TIMEOUT_S = 0.2  # its own is what ends a hint that was cut short; it then tries again
HEARD_WITHIN_S = 120.0
CALLS_OF_ALL_TURNS = 20

CALLS: dict[str, Callable[[DelayStore], Any]] = {
    "next": lambda store: store.next(),
    "schedule": lambda store: store.schedule([envelope("a"), envelope("b")], max_delay_ms=10**9),
    "promote": lambda store: store.promote(),
    "claim": lambda store: store.claim(9, 30_000),
    "ack": lambda store: store.ack(TOKEN, ["a"]),
    "retry": lambda store: store.retry(TOKEN, [Retry("b", 9, True, True, "E\nno")]),
    "release": lambda store: store.release(TOKEN, ["c"]),
    "bury": lambda store: store.bury(TOKEN, [Burial("d", Reason.INVALID, True, False, "")]),
    "reclaim": lambda store: store.reclaim(),
    "shunt": lambda store: store.shunt(9, 30_000),
    "postpone": lambda store: store.postpone(TOKEN, ["d"], 5),
    "replay": lambda store: store.replay(["d", "e"]),
    "drop": lambda store: store.drop(["d", "e"]),
    "cancel": lambda store: store.cancel("e"),
    "reschedule": lambda store: store.reschedule("f", "+70", 10**9),
    "get": lambda store: store.get("a"),
    "list": lambda store: store.list("unack"),
    "stats": lambda store: store.stats(),
    "forget": lambda store: store.forget(),
}


@pytest.fixture(scope="module")
def tampered(connection: Connection) -> Tampered:
    return Tampered(connection.client)


@pytest.fixture(scope="module")
def config() -> Config:
    return fuzz_config("replies", party.ROUTES)


def url_of(port: int) -> str:
    return f"redis://:{SECRET}@127.0.0.1:{port}"


class Spoiled(NamedTuple):
    """A server behind a proxy, a connection through that, and one that goes round it."""

    proxy: SpoilingProxy
    connection: Connection
    direct: Connection

    def open(self, timeout_s: float) -> Connection:
        """Open one more through the proxy."""
        return open_connection(url_of(self.proxy.port), timeout_s)

    def begin(self) -> None:
        """Forget everything."""
        self.proxy.heal()
        self.connection.client.connection_pool.disconnect()  # one reply too many shifts all later
        self.direct.client.flushdb()


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoiled]:
    with redis_server(tmp_path_factory.mktemp("spoiled"), "--requirepass", SECRET) as port:
        proxy = SpoilingProxy(port)
        connection = open_connection(url_of(proxy.port), HANGS_S)
        direct = open_connection(url_of(port))
        direct.load_scripts()
        yield Spoiled(proxy, connection, direct)
        connection.close()
        direct.close()
        proxy.close()


@pytest.fixture(scope="module")
def true_replies(connection: Connection) -> dict[str, Any]:
    """What a real server answers to each call, of a shard that has something in every state."""
    connection.client.flushdb()
    desk = Desk(connection, "replies")
    desk.dead("d", "e")
    desk.retry("b", failed=True, error="E\nno", delay_ms=10**6)
    desk.unack("a", "c")
    desk.ready("g", "h")
    desk.pending("f")
    found: dict[str, Any] = {}
    recording = Tampered(connection.client)
    store = DelayStore(recording, desk.shard, now_ms=desk.clock)
    for name, call in CALLS.items():

        def keep(value: Any, name: str = name) -> Any:
            return found.setdefault(name, value)

        recording.change = keep
        call(store)
    connection.client.flushdb()
    return found


@fuzz(0.4)
@given(data=st.data(), name=st.sampled_from(sorted(CALLS)))
def test_reply_of_any_shape_is_read_or_is_a_store_error(
    data: st.DataObject, name: str, tampered: Tampered, true_replies: dict[str, Any]
) -> None:
    drawn["replies"] += 1
    reply = data.draw(st.composite(changed)(true_replies[name], keeps_bytes=False))
    reader = DelayStore(Parrot(reply), Shard("replies", "route", 0))
    with suppress(StoreError):
        CALLS[name](reader)


def turn_through(floor: Floor) -> None:
    """Turn while replies are wrong: a turn never raises, and ends."""
    floor.advance(1000)
    for _ in range(5):
        begun_at = time.monotonic()
        floor.worker.run_once()
        assert time.monotonic() - begun_at < TURN_WITHIN_S
        floor.advance(500)


@fuzz(0.3)
@given(data=st.data(), places=st.sets(st.integers(0, CALLS_OF_ALL_TURNS), min_size=1, max_size=3))
def test_worker_goes_on_after_replies_of_any_shape(
    data: st.DataObject, places: set[int], tampered: Tampered, config: Config
) -> None:
    tampered.change = None
    tampered.client.flushdb()
    floor = Floor(tampered, config.store.namespace, config)
    party.invite(floor)
    calls = itertools.count()

    def change(reply: Any) -> Any:
        if next(calls) not in places:
            return reply
        drawn["replies"] += 1
        return data.draw(st.composite(changed)(reply, keeps_bytes=True))

    with capture_logs() as logs:
        tampered.change = change
        turn_through(floor)
        tampered.change = None
        party.finish(floor)
    party.check_no_defect(logs)
    party.check_all_arrived(floor)
    tampered.client.flushdb()


spoilings = st.builds(
    lambda before, spoiling: [unspoilt] * before + spoiling,
    st.integers(0, 2 * CALLS_OF_ALL_TURNS),
    st.lists(spoilers(), min_size=1, max_size=3),
)


def test_proxy_hangs_up_on_who_waits_for_what_was_spoilt_and_on_nobody_else(
    spoiled: Spoiled,
) -> None:
    """However slow an answer is: that is what a loaded machine makes of every one."""
    spoiled.begin()
    wait_for_nothing = ("BLPOP", "nothing", 2 * TICK_S + 0.1)
    client: Any = spoiled.connection.client
    spoiled.proxy.spoil([])
    assert client.execute_command(*wait_for_nothing) is None
    spoiled.proxy.spoil([lambda data: Spoilt(data[:1], False)])
    with pytest.raises(redis.exceptions.ConnectionError):
        client.execute_command("PING")
    spoiled.proxy.heal()
    assert client.execute_command(*wait_for_nothing) is None


@fuzz(0.2)
@given(spoiling=spoilings)
def test_worker_goes_on_after_spoilt_bytes(
    spoiling: list[Spoiler], spoiled: Spoiled, config: Config
) -> None:
    spoiled.begin()
    floor = Floor(spoiled.connection, config.store.namespace, config)
    party.invite(floor)
    with capture_logs() as logs:
        spoiled.proxy.spoil(spoiling)
        turn_through(floor)
        spoiled.proxy.heal()
        party.finish(floor)
    drawn["replies"] += spoiled.proxy.spoilt
    assert SECRET not in str(logs)
    party.check_no_defect(logs)
    party.check_all_arrived(floor)


def said_by(call: Callable[[], object]) -> str:
    """What a call that may fail shows of it."""
    try:
        return str(call())
    except StoreError as error:
        return "".join(traceback.format_exception(error))


@fuzz(0.1)
@given(spoiling=spoilings)
def test_programs_get_a_store_error_of_spoilt_bytes(
    spoiling: list[Spoiler], spoiled: Spoiled, config: Config
) -> None:
    spoiled.begin()
    connection = spoiled.connection
    spoiled.proxy.spoil(spoiling[-12:])
    operator = Operator(config, connection)
    for call in (
        lambda: Producer(config, connection, repeat_for_s=0).schedule("r", b"x", delay="1s"),
        lambda: operator.stats(),
        lambda: list(operator.listing("r").walk()),
        lambda: list(operator.events().new()),
    ):
        assert SECRET not in said_by(call)
    drawn["replies"] += spoiled.proxy.spoilt


@fuzz(0.02)
@given(spoiling=st.lists(spoilers(), min_size=1, max_size=2))
def test_listener_outlives_spoilt_bytes(spoiling: list[Spoiler], spoiled: Spoiled) -> None:
    spoiled.begin()
    shard, heard = Shard("replies", "r", 0), Event()
    publish = partial(spoiled.direct.client.publish, shard.wake, 1)

    def is_heard() -> bool:
        """Give a hint, and then the silence by which a listener notices that one was cut short."""
        publish()
        return heard.wait(2 * LISTENER_TIMEOUT_S)

    quick = mock.patch.multiple("duebridge.store.wakeup", POLL_S=0.02, PAUSE_S=0.02)
    with quick, closing(spoiled.open(LISTENER_TIMEOUT_S)) as connection:
        listener = WakeListener(connection, {shard: heard.set})
        listener.start()
        wait_until(publish, "the listener to subscribe", HEARD_WITHIN_S)
        spoiled.proxy.spoil(spoiling, hangs_up=False)
        for _ in spoiling:
            is_heard()
        spoiled.proxy.heal()
        heard.clear()
        wait_until(is_heard, "a hint to be heard", HEARD_WITHIN_S)
        listener.close()
    drawn["replies"] += spoiled.proxy.spoilt
