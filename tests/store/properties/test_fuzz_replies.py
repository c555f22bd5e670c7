"""Any reply of the store is taken or is a StoreError, and a worker goes on after it.

No spoilt reply changes the bytes inside an envelope: against that there are checksums below us.
"""

import itertools
import select
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from threading import Event
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from duebridge.admin.events import EventReader
from duebridge.admin.listing import Listing
from duebridge.admin.operator import Operator
from duebridge.config.models import Config
from duebridge.errors import StoreError
from duebridge.ports.publisher import Delivery, Outcome, Reason, Verdict
from duebridge.producer import Producer
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.server.connection import Connection, Reply, open_connection
from duebridge.store.wakeup import WakeListener
from tests.store.every_call import CALLS, fill_every_state
from tests.support.desk import LEASE_MS, Desk
from tests.support.floor import Floor
from tests.support.model.fuzzing import check_no_defect, embedded, fuzz, fuzz_config
from tests.support.network.proxy import CHUNK, TICK_S, Proxy
from tests.support.servers import redis_server, wait_until

SECRET = "Canary-s3cr3t"  # noqa: S105 - of a server that the test itself starts
FINE, FAILS_ONCE, REFUSED = ["a", "b", "c", "d"], "e", "f"
ROUTE: dict[str, Any] = {
    "target": {"broker": "memory", "topic": "t"},
    "dead_letter": {"broker": "memory", "topic": "dlt"},
    "retry": {"initial": "1s", "jitter": "none"},
}
# Only what hangs takes so long, on a slow machine too: the proxy ends what it has spoilt.
HANGS_S = 60.0
TURN_WITHIN_S = 30.0
LISTENER_TIMEOUT_S = 0.2  # its own is what ends a hint that was cut short; it then tries again
CALLS_OF_ALL_TURNS = 20

no_bytes = st.none() | st.booleans() | st.floats() | st.integers(-(2**63), 2**63 - 1)
no_bytes |= st.sampled_from([-1, 0, 1, 2**48, 2**63 - 1])
scalars = no_bytes | st.binary(max_size=60)
scalars |= st.sampled_from([b"", b"OK", b"\xff", b"-inf", b"\x01" + bytes(38), b"\x02" + bytes(60)])


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=6) | st.dictionaries(st.binary(max_size=3), inner, max_size=2)
        ),
        max_leaves=12,
    )


anything, anything_but_bytes = nested(scalars), nested(no_bytes)


@st.composite
def changed(draw: st.DrawFn, value: Any, *, keeps_bytes: bool) -> Any:
    """A true reply with one place of it dropped, doubled, cut, or replaced by something else."""
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(value) - 1))
        inner = draw(changed(value[place], keeps_bytes=keeps_bytes))
        return [*value[:place], inner, *value[place + 1 :]]
    how = draw(st.sampled_from(["replace", "cut", "double", "drop"]))
    if how == "cut" and (isinstance(value, list) or (isinstance(value, bytes) and not keeps_bytes)):
        return value[: draw(st.integers(0, len(value)))]
    if isinstance(value, list) and how in {"double", "drop"}:
        return value + value[:1] if how == "double" else value[1:]
    return draw(anything_but_bytes if keeps_bytes else anything)


class Tampered(Connection):
    """A connection whose next replies go through `change`; without a client it is asked nothing."""

    def __init__(self, client: Any, change: Callable[[Any], Any] = lambda reply: reply) -> None:
        super().__init__(client)
        self.change = change

    def run(self, *asked: Any) -> Reply:
        reply = super().run(*asked) if self.client else Reply(None, False)
        return Reply(self.change(reply.value), reply.repeated)


class Spoilt(NamedTuple):
    """What the client gets of a chunk of replies, and whether the connection then ends."""

    data: bytes
    is_cut: bool


Spoiler = Callable[[bytes], Spoilt]
WORDS = [
    *("+OK", "-ERR no", "-OOM command not allowed", "-BUSY Redis is busy", "-LOADING wait"),
    *("-NOSCRIPT No matching script", "-MOVED 1 127.0.0.1:1", "-MOVED", "-ASK x", "-READONLY no"),
    *("-NOAUTH no", "-WRONGPASS no", "-NOPERM no", "-CLUSTERDOWN x", "-TRYAGAIN x", "-MISCONF no"),
    *("-", "-\xff\xfe", ":1", ":", ":x", ":99999999999999999999", "$-1", "$0", "$3", "$x", "*0"),
    *("$99999999999", "*-1", "*1", "*99999999", "_", "#t", "#x", ",1.5", ",x", "(9", "%1", "~1"),
    *(">1", "=4", "!3", "@", "HTTP/1.1 200 OK", "", "\0"),
]


def unspoilt(data: bytes) -> Spoilt:
    return Spoilt(data, False)


@st.composite
def spoilers(draw: st.DrawFn) -> Spoiler:
    word = draw(st.sampled_from(WORDS)).encode("latin-1") + b"\r\n"
    part, byte = draw(st.floats(0, 0.99)), draw(st.binary(min_size=1, max_size=1))
    ends = draw(st.booleans())
    ways: list[Spoiler] = [
        lambda data: Spoilt(data[: int(part * len(data))], ends),
        lambda data: Spoilt(word, ends),
        lambda data: Spoilt(word + data, ends),
        lambda data: Spoilt(data + word, ends),
        lambda data: Spoilt(byte + data[1:], ends),
    ]
    return draw(st.sampled_from(ways))


spoilings = st.builds(
    lambda before, spoiling: [unspoilt] * before + spoiling,
    st.integers(0, 2 * CALLS_OF_ALL_TURNS),
    st.lists(spoilers(), min_size=1, max_size=3),
)


class SpoilingProxy(Proxy):
    """A proxy whose next chunks of replies are spoilt, one after the other.

    Whoever waits for the rest of what was spoilt is hung up on; so its client needs no timeout, by
    which a slow machine would break calls that nobody spoilt. After `heal` every call is answered.
    """

    def __init__(self, target_port: int) -> None:
        self._spoilers: list[Spoiler] = []
        self._hangs_up = False
        super().__init__(target_port)

    def spoil(self, spoilers: Iterable[Spoiler], *, hangs_up: bool = True) -> None:
        with self._lock:
            self._spoilers, self._hangs_up = list(spoilers), hangs_up

    def heal(self) -> None:
        self.spoil([], hangs_up=False)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        is_spoilt = False
        while not self._is_closed:
            readable, _, _ = select.select([client, server], [], [], TICK_S)
            if not readable and is_spoilt and self._hung_up(client):
                return
            if server in readable:
                data = server.recv(CHUNK)
                given = self._give(data, client)
                if not data or given.is_cut:
                    return
                is_spoilt |= given != unspoilt(data)
            if client in readable:
                request = client.recv(CHUNK)
                if not request:
                    return
                server.sendall(request)

    def _hung_up(self, client: socket.socket) -> bool:
        with self._lock:  # whoever healed it since is not hung up on
            if self._hangs_up:
                client.shutdown(socket.SHUT_RDWR)
            return self._hangs_up

    def _give(self, data: bytes, client: socket.socket) -> Spoilt:
        with self._lock:
            spoiler = self._spoilers.pop(0) if self._spoilers and data else unspoilt
            given = spoiler(data)
            client.sendall(given.data)
            if given.is_cut:
                client.shutdown(socket.SHUT_RDWR)
        return given


class Spoiled(NamedTuple):
    """A server behind a proxy, a connection through that, and one that goes round it."""

    proxy: SpoilingProxy
    connection: Connection
    direct: Connection

    def begin(self) -> None:
        self.proxy.heal()
        self.connection.client.connection_pool.disconnect()  # one reply too many shifts all later
        self.direct.client.flushdb()


def url_of(port: int) -> str:
    return f"redis://:{SECRET}@127.0.0.1:{port}"


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoiled]:
    with redis_server(tmp_path_factory.mktemp("spoiled"), "--requirepass", SECRET) as port:
        proxy = SpoilingProxy(port)
        with (
            closing(proxy),
            closing(open_connection(url_of(proxy.port), HANGS_S)) as connection,
            closing(open_connection(url_of(port))) as direct,
        ):
            direct.load_scripts()
            yield Spoiled(proxy, connection, direct)


@pytest.fixture(scope="module")
def tampered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tampered]:
    with embedded(f"embedded:{tmp_path_factory.mktemp('fuzz')}") as connection:
        yield Tampered(connection.client)


@pytest.fixture(scope="module")
def config() -> Config:
    return fuzz_config("replies", {"r": ROUTE})


@pytest.fixture(scope="module")
def true_replies(tampered: Tampered) -> dict[str, Any]:
    """What a real server answers to each call, of a shard that has something in every state."""
    desk = Desk(tampered, "replies")
    fill_every_state(desk)
    found: dict[str, Any] = {}
    for name, call in CALLS.items():
        recording = Tampered(tampered.client, partial(found.setdefault, name))
        call(
            DelayStore(recording, desk.shard, now_ms=desk.clock, cold_tier_ms=10**9, life=desk.life)
        )
    tampered.client.flushdb()
    return found


@fuzz(0.4)
@given(data=st.data(), name=st.sampled_from(sorted(CALLS)))
def test_reply_of_any_shape_is_read_or_is_a_store_error(
    data: st.DataObject, name: str, true_replies: dict[str, Any]
) -> None:
    reply = data.draw(changed(true_replies[name], keeps_bytes=False))
    with suppress(StoreError):
        CALLS[name](DelayStore(Tampered(None, lambda _: reply), Shard("replies", "route", 0)))


def invite(floor: Floor) -> None:
    """Schedule envelopes that are delivered, one after a failure, and one that is refused."""
    failed: set[str] = set()

    def outcome(delivery: Delivery) -> Outcome | None:
        if delivery.target.topic == "t" and delivery.id == FAILS_ONCE and not failed:
            failed.add(delivery.id)
            return Outcome(Verdict.FAILED, error_class="E", error_message="not now")
        is_refused = delivery.target.topic == "t" and delivery.id == REFUSED
        return Outcome(Verdict.REJECTED, Reason.INVALID, "E", "never") if is_refused else None

    floor.publisher.script(outcome)
    floor.schedule(*FINE, FAILS_ONCE, REFUSED)


def turn_through(floor: Floor) -> None:
    """Turn while replies are wrong: a turn never raises, and ends."""
    floor.advance(1000)
    for _ in range(5):
        begun_at = time.monotonic()
        floor.worker.run_once()
        assert time.monotonic() - begun_at < TURN_WITHIN_S
        floor.advance(500)


def finish(floor: Floor, logs: list[Any]) -> None:
    """Let every lease and pause end: nothing is lost, or other than it was, or left behind."""
    store = floor.stores["r"]
    DelayStore(store._connection, store.shard, repeat_for_s=10.0).next()
    for _ in range(5):
        floor.turn(LEASE_MS + 1000)
    assert SECRET not in str(logs)
    check_no_defect(logs)
    assert set(floor.arrived()) == {*FINE, FAILS_ONCE}
    assert set(floor.arrived("dlt")) == {REFUSED}
    for each in floor.publisher.delivered:
        assert each.body == f"body of {each.id}".encode()
    assert floor.stores["r"].next().envelopes == 0


@fuzz(0.3)
@given(data=st.data(), places=st.sets(st.integers(0, CALLS_OF_ALL_TURNS), min_size=1, max_size=3))
def test_worker_goes_on_after_replies_of_any_shape(
    data: st.DataObject, places: set[int], tampered: Tampered, config: Config
) -> None:
    tampered.client.flushdb()
    floor = Floor(tampered, config.store.namespace, config)
    invite(floor)
    calls = itertools.count()

    def change(reply: Any) -> Any:
        return data.draw(changed(reply, keeps_bytes=True)) if next(calls) in places else reply

    with capture_logs() as logs:
        with mock.patch.object(tampered, "change", change):
            turn_through(floor)
        finish(floor, logs)


@fuzz(0.2)
@given(spoiling=spoilings)
def test_worker_goes_on_after_spoilt_bytes(
    spoiling: list[Spoiler], spoiled: Spoiled, config: Config
) -> None:
    spoiled.begin()
    floor = Floor(spoiled.connection, config.store.namespace, config)
    invite(floor)
    with capture_logs() as logs:
        spoiled.proxy.spoil(spoiling)
        turn_through(floor)
        spoiled.proxy.heal()
        finish(floor, logs)


@fuzz(0.1)
@given(spoiling=spoilings)
def test_programs_get_a_store_error_of_spoilt_bytes(
    spoiling: list[Spoiler], spoiled: Spoiled, config: Config
) -> None:
    spoiled.begin()
    connection = spoiled.connection
    spoiled.proxy.spoil(spoiling[-12:])
    operator = Operator(config, connection)
    calls: list[Callable[[], object]] = [
        lambda: Producer(config, connection, repeat_for_s=0).schedule("r", b"x", delay="1s"),
        lambda: operator.stats(),
        lambda: list(Listing("r", operator.stores("r")).walk()),
        lambda: list(EventReader(operator.journals()).new()),
    ]
    for call in calls:
        try:
            said = str(call())
        except StoreError as error:
            said = "".join(traceback.format_exception(error))
        assert SECRET not in said


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
    opened = open_connection(url_of(spoiled.proxy.port), LISTENER_TIMEOUT_S)
    with quick, closing(opened) as connection:
        listener = WakeListener(connection, {shard: heard.set})
        listener.start()
        wait_until(publish, "the listener to subscribe", 120)
        spoiled.proxy.spoil(spoiling, hangs_up=False)
        for _ in spoiling:
            is_heard()
        spoiled.proxy.heal()
        heard.clear()
        wait_until(is_heard, "a hint to be heard", 120)
        listener.close()
