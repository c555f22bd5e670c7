"""A connection: what becomes of a call when the server is away, silent, full or refuses."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from duebridge.errors import ConfigError, StoreError, StoreUnavailable, StoreUnfit
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.life import RouteLife
from duebridge.store.registry import Registry
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.fitness import check_fitness
from duebridge.store.server.reconnects import CallSuppressed, Reconnects
from duebridge.store.server.scripts import names, script
from tests.support.desk import Desk, ManualClock, acks
from tests.support.network.proxy import proxied
from tests.support.servers import free_port, redis_cluster, redis_server, wait_until

StoreAt = Callable[..., DelayStore]
SHARD = Shard("connection", "route", 0)
SECRET = "hunter2"  # noqa: S105 - the text that must not come out again
TIMEOUT_S = 2.0  # of a connection whose server may be silent
LONG_S = 20.0  # patience; a call that has to end before it may take half of it on a busy machine


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server of our own that wants a password."""
    with redis_server(tmp_path_factory.mktemp("own"), "--requirepass", SECRET) as opened:
        yield opened


@pytest.fixture
def admin(port: int) -> Iterator[redis.Redis]:
    with redis.Redis(port=port, password=SECRET) as opened:
        yield opened


@pytest.fixture
def store_at(open_at: Callable[..., Connection]) -> StoreAt:
    def make(url: str, repeat_for_s: float = 0.0, timeout_s: float = LONG_S) -> DelayStore:
        connection = open_at(url, timeout_s)
        registry = Registry(connection, SHARD.namespace, repeat_for_s)
        life = RouteLife(registry, SHARD.route, registers=True, shards=1)
        return DelayStore(connection, SHARD, repeat_for_s=repeat_for_s, life=life)

    return make


def url_of(port: int) -> str:
    return f"redis://:{SECRET}@127.0.0.1:{port}"


def test_script_flush_is_mended_silently_and_at_once(desk: Desk) -> None:
    for _ in range(2):
        desk.client.script_flush()
        desk.pending(f"{desk.clock()}")
        desk.clock.advance(1)
    assert desk.store.next().pending == 2


def test_load_scripts_makes_every_script_known(desk: Desk, connection: Connection) -> None:
    shas = [connection.form_of(script(name)).sha for name in names()]
    desk.client.script_flush()

    def is_loaded() -> bool:
        connection.load_scripts()
        return all(desk.client.script_exists(*shas))

    # Tests beside this one may flush the server that all share.
    wait_until(is_loaded, "every script to be known")


def test_every_call_is_observed_by_its_script_answered_or_not(
    desk: Desk, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(connection, "observe", lambda name, seconds: seen.append(name))
    desk.store.next()
    desk.store.promote()
    monkeypatch.setattr(Connection, "_run_once", fail)
    with pytest.raises(StoreUnavailable):
        desk.store.stats()
    assert seen == ["next", "promote", "stats"]


def fail(*_: object) -> None:
    raise StoreUnavailable("away")


def test_store_that_is_not_there_is_unavailable_without_its_secret(store_at: StoreAt) -> None:
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match="did not answer") as refused:
        store_at(url_of(free_port())).next()
    assert time.monotonic() - started < LONG_S / 2
    assert SECRET not in f"{refused.value!r} {refused.value} {refused.value.__cause__}"


def test_store_that_is_not_there_is_asked_again_for_the_given_time(store_at: StoreAt) -> None:
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        store_at(f"redis://127.0.0.1:{free_port()}", repeat_for_s=0.4).next()
    assert 0.05 < time.monotonic() - started < LONG_S / 2


def test_store_that_falls_silent_is_unavailable_within_the_timeout(
    store_at: StoreAt, port: int
) -> None:
    with proxied(port) as proxy:
        store = store_at(url_of(proxy.port), timeout_s=TIMEOUT_S)
        store.next()
        proxy.fall_silent()
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match="did not answer"):
            store.next()
        assert time.monotonic() - started < 5 * TIMEOUT_S


def test_store_that_comes_back_answers_a_repeated_call(store_at: StoreAt, port: int) -> None:
    with proxied(port) as proxy:
        store = store_at(url_of(proxy.port), repeat_for_s=20)
        store.ack(acks(b"token", "a"))
        proxy.refuse(4)
        assert store.ack(acks(b"token", "a")).repeated
        assert proxy.refused == 4
        assert not store.ack(acks(b"token", "a")).repeated


STARTS: dict[str, Callable[[Connection, float], object]] = {
    "check": lambda connection, patience: check_fitness(connection, ("persistence",), patience),
    "scripts": lambda connection, patience: connection.load_scripts(patience),
    "registry": lambda connection, patience: Registry(connection, "n", patience).open_route("r", 1),
}


@pytest.mark.parametrize("name", STARTS)
def test_start_survives_connections_that_are_dropped(
    open_at: Callable[..., Connection], port: int, name: str
) -> None:
    with proxied(port) as proxy:
        proxy.refuse(3)
        connection = open_at(url_of(proxy.port), LONG_S)
        with pytest.raises(StoreUnavailable):
            STARTS[name](connection, 0.0)
        STARTS[name](connection, 20.0)
        assert proxy.refused == 3


def test_store_that_accepts_and_resets_is_asked_a_few_times_a_second(
    open_at: Callable[..., Connection], port: int
) -> None:
    with proxied(port) as proxy:
        proxy.refuse(10**6)
        connection = open_at(url_of(proxy.port), LONG_S)
        shards = [DelayStore(connection, Shard("n", "r", number)) for number in range(8)]
        began, took_s = time.monotonic(), 0.0
        while took_s < 1.5 or proxy.refused <= 2:
            for shard in shards:
                with pytest.raises(StoreUnavailable):
                    shard.next()
            took_s = time.monotonic() - began
        assert proxy.refused < 14 * took_s / 1.5


def test_connection_that_did_not_last_counts_as_none() -> None:
    clock = ManualClock(0)
    reconnects = Reconnects(lambda: clock() / 1000)

    def wait_ms() -> int:
        """Let a call fail, and return how long none is asked then."""
        reconnects.check()
        reconnects.failed()
        for waited in range(1000):
            with suppress(CallSuppressed):
                reconnects.check()
                reconnects.answered()
                return waited
            clock.advance(1)
        raise AssertionError("asked no more")

    pauses = [wait_ms() for _ in range(8)]
    assert pauses[0] == 0
    for pause, most in zip(pauses[1:6], (20, 40, 80, 160, 320), strict=True):
        assert most // 2 <= pause <= most + 1
    assert all(250 <= each <= 501 for each in pauses[6:])
    clock.advance(2001)
    assert wait_ms() == 0


def test_claim_of_a_store_that_is_away_is_asked_once(store_at: StoreAt, port: int) -> None:
    with proxied(port) as proxy:
        store = store_at(url_of(proxy.port), repeat_for_s=20)
        store.next()
        for call in (store.claim, store.shunt):
            proxy.refuse(1)
            with pytest.raises(StoreUnavailable):
                call(1, 1000)
        assert proxy.refused == 2


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:{wrong}@127.0.0.1:{port}", "invalid username-password pair"),
        ("redis://127.0.0.1:{port}", "it wants a password, and store.url has none"),
    ],
)
def test_wrong_password_is_unfit_and_comes_out_nowhere(
    store_at: StoreAt, port: int, url: str, said: str
) -> None:
    wrong = f"not-{SECRET}"
    store = store_at(url.format(wrong=wrong, port=port), repeat_for_s=LONG_S)
    started = time.monotonic()
    with pytest.raises(StoreUnfit, match=said) as refused:
        store.next()
    assert time.monotonic() - started < LONG_S / 2, "a refusal is not repeated"
    assert SECRET not in f"{refused.value!r} {refused.value}"


@pytest.mark.parametrize(
    "url",
    [
        f"user:{SECRET}@host:6379",
        f"http://user:{SECRET}@host",
        f"redis:user:{SECRET}@host",
        f"rediss:user:{SECRET}@host",
        f"redis://:{SECRET}@host:port/0",
        f"redis+cluster://:{SECRET}@host:port",
        f"redis://:{SECRET}@host/0?ssl_ca_certs=/ca.pem",
        "",
    ],
)
def test_url_of_another_kind_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^store\.url: expected rediss?(\+cluster)?://"
    ) as refused:
        open_connection(url)
    assert SECRET not in str(refused.value)


def test_busy_store_is_unavailable_and_answers_when_it_is_free(
    store_at: StoreAt, port: int, admin: redis.Redis
) -> None:
    admin.config_set("busy-reply-threshold", 1)
    spinner = redis.Redis(port=port, password=SECRET)

    def spin() -> None:
        with pytest.raises(redis.ResponseError):
            spinner.eval("while true do end", 0)

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        wait_until(lambda: is_busy(admin), "the server to be busy")
        with pytest.raises(StoreUnavailable, match="BUSY"):
            store_at(url_of(port)).next()
        free = threading.Timer(0.2, admin.script_kill)
        free.start()
        assert store_at(url_of(port), repeat_for_s=20).next().pending == 0
        free.join()
    finally:
        if is_busy(admin):
            admin.script_kill()
        thread.join()
        spinner.close()
        admin.config_set("busy-reply-threshold", 5000)


def is_busy(admin: redis.Redis) -> bool:
    try:
        admin.ping()
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


def test_store_that_refuses_to_write_is_read_at_once(
    store_at: StoreAt, port: int, admin: redis.Redis
) -> None:
    store = store_at(url_of(port))
    store.promote()
    admin.config_set("min-replicas-to-write", 1)
    try:
        for _ in range(5):
            with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
                store.promote()
            assert store.next().pending == 0
    finally:
        admin.config_set("min-replicas-to-write", 0)


def test_error_of_a_script_is_a_store_error_and_not_repeated(store_at: StoreAt, port: int) -> None:
    store = store_at(url_of(port), repeat_for_s=LONG_S)
    started = time.monotonic()
    with pytest.raises(StoreError, match="LIMIT"):
        store.drop(["a"] * 1001)
    assert time.monotonic() - started < LONG_S / 2


def test_threads_share_a_connection(desk: Desk) -> None:
    failed: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for n in range(20):
                desk.pending(f"{name}-{n}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(desk.check()["pending"]) == 160


def test_call_beside_a_hundred_others_is_answered(desk: Desk, connection: Connection) -> None:
    pool = connection.server_of(desk.store.shard.wake).connection_pool
    lent = [pool.get_connection() for _ in range(101)]
    try:
        assert desk.store.next().pending == 0
    finally:
        for each in lent:
            each.disconnect()
            pool.release(each)


def test_cluster_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable) as refused:
        open_connection(f"redis+cluster://:{SECRET}@127.0.0.1:{free_port()}", 0.3)
    assert SECRET not in str(refused.value)


def test_cluster_whose_first_connections_are_dropped_is_opened_by_who_is_patient(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("flaky")
    with redis_cluster(home) as url, proxied(int(url.rsplit(":", 1)[1])) as proxy:
        proxy.refuse(2)
        open_connection(f"redis+cluster://127.0.0.1:{proxy.port}", repeat_for_s=LONG_S).close()
        assert proxy.refused == 2


def test_wrong_password_of_a_cluster_is_unfit(tmp_path_factory: pytest.TempPathFactory) -> None:
    with redis_cluster(tmp_path_factory.mktemp("closed")) as url:
        with redis.Redis(port=int(url.rsplit(":", 1)[1])) as node:
            node.config_set("requirepass", SECRET)
        with pytest.raises(StoreUnfit) as refused:
            open_connection(url.replace("://", f"://:not-{SECRET}@"))
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize("fault", [("SHUTDOWN", "NOSAVE"), ("CLUSTER", "DELSLOTSRANGE", 0, 16383)])
def test_cluster_that_goes_away_or_loses_its_slots_is_unavailable(
    store_at: StoreAt, tmp_path_factory: pytest.TempPathFactory, fault: tuple[str | int, ...]
) -> None:
    with redis_cluster(tmp_path_factory.mktemp("gone")) as url:
        store = store_at(url, repeat_for_s=1.0)  # enough to renew the map
        store.next()
        once = Retry(NoBackoff(), 0)  # or it waits for a server that it shut down
        client = redis.Redis(port=int(url.rsplit(":", 1)[1]), retry=once)
        with client as node, suppress(redis.RedisError):
            node.execute_command(*fault)
        started = time.monotonic()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                store.next()
        assert time.monotonic() - started < 60


def test_open_the_url_of_another_server_says_that_it_is_no_redis(rabbitmq_url: str) -> None:
    where = rabbitmq_url.partition("@")[2].partition("/")[0]
    with pytest.raises(StoreUnfit, match="the server that answered is not Redis or Valkey"):
        open_connection(f"redis://{where}").load_scripts()
