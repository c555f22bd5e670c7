"""URLs of Sentinel sets and Clusters on real servers: log-ins, TLS, seeds that are away."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from duebridge.config.secrets import masked_url
from duebridge.config.store_url import read_set_address, url_fault
from duebridge.errors import ConfigError, StoreError, StoreFull, StoreUnavailable, StoreUnfit
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.errors import SlotMigrating, WritesRefused, translated_errors
from duebridge.store.server.reconnects import CallSuppressed
from duebridge.store.server.rights import sentinel_rights
from duebridge.store.server.sets import sentinel
from tests.store.conftest import NO_FAILOVER_MS
from tests.support.certificates import Certificates, tls_options
from tests.support.desk import shard_of
from tests.support.redis.redis_node import RedisNode, server
from tests.support.redis.redis_sets import NAME, SentinelSet, sentinel_set
from tests.support.servers import (
    free_port,
    of_a_cluster,
    redis_server,
    silent_listener,
    take_every_slot,
    wait_until,
)

SECRET, SENTINELS_SECRET = "canary-p@ss", "canary/sentinels"
OpenAt = Callable[..., Connection]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelSet]:
    """A set whose servers want one password and whose Sentinels want another."""
    lines = (f"requirepass {SENTINELS_SECRET}", f"sentinel sentinel-pass {SENTINELS_SECRET}")
    home = tmp_path_factory.mktemp("guarded")
    options = {"password": SECRET, "sentinel_options": lines}
    with sentinel_set(home, replicas=0, down_after_ms=NO_FAILOVER_MS, **options) as running:
        yield running


def url_of(
    servers: SentinelSet,
    login: str = "canary-p%40ss",
    sentinels: str = "canary%2Fsentinels",
    service: str = NAME,
    first: str = "",
) -> str:
    hosts = first + ",".join(f"127.0.0.1:{each.port}" for each in servers.sentinels)
    return f"redis+sentinel://:{login}@{hosts}/{service}/3?sentinel_password={sentinels}"


def test_url_of_a_guarded_set_opens_its_master_and_database(
    guarded: SentinelSet, open_at: OpenAt
) -> None:
    connection = open_at(url_of(guarded))
    assert shard_of(connection).next().pending == 0
    connection.client.set("here", 1)
    with redis.Redis(port=guarded.master().port, password=SECRET, db=3) as direct:
        assert direct.get("here") == b"1"


@pytest.mark.parametrize(
    "wrong", [{"login": "canary-x"}, {"sentinels": "canary-x"}, {"service": "another"}]
)
def test_wrong_word_to_a_set_is_unfit_and_shows_no_secret(
    guarded: SentinelSet, open_at: OpenAt, wrong: dict[str, str]
) -> None:
    store = shard_of(open_at(url_of(guarded, **wrong)))
    with pytest.raises(StoreUnfit) as refused:
        store.next()
    assert "canary" not in f"{refused.value} {refused.value.__cause__}"


def test_login_of_the_sentinels_is_read_at_each_connect(
    guarded: SentinelSet, open_at: OpenAt
) -> None:
    old = url_of(guarded, sentinels="canary-of-yesterday")
    store = shard_of(open_at(old, read_url=lambda: url_of(guarded)))
    assert store.next().pending == 0


def test_own_user_of_the_sentinels_with_the_printed_rights_finds_the_master(
    guarded: SentinelSet, open_at: OpenAt
) -> None:
    for each in guarded.sentinels:
        each.ask("ACL", "SETUSER", "asks", "on", ">canary-own", *sentinel_rights())
    own = f"{url_of(guarded, sentinels='canary-own')}&sentinel_username=asks"
    store = shard_of(open_at(own))
    assert store.next().pending == 0
    for each in guarded.sentinels:
        wait_until(lambda each=each: asked_by(each, "asks"), "each Sentinel to be asked")
        assert [line for line in each.ask("ACL", "LOG") if line[b"username"] == b"asks"] == []


def asked_by(sentinel: RedisNode, user: str) -> bool:
    """Tell whether a user of a Sentinel has asked it for the master and was not refused."""
    clients = sentinel.ask("CLIENT LIST")
    return any(each["user"] == user and each["cmd"] != "hello" for each in clients)


@pytest.fixture
def long_timeout_s(monkeypatch: pytest.MonkeyPatch) -> float:
    """Let whoever waits for a Sentinel wait so long that no busy machine looks like it."""
    monkeypatch.setattr(sentinel, "SENTINEL_TIMEOUT_S", 20.0)
    return 20.0


def test_sentinels_that_are_away_cost_no_time_where_most_answer(
    guarded: SentinelSet, open_at: OpenAt, long_timeout_s: float
) -> None:
    with silent_listener() as silent:
        away = f"127.0.0.1:{free_port()},127.0.0.1:{silent},"
        store = shard_of(open_at(url_of(guarded, first=away)))
        started = time.monotonic()
        store.next()
        assert time.monotonic() - started < long_timeout_s / 2


def test_no_sentinel_there_is_unavailable_at_once(open_at: OpenAt, long_timeout_s: float) -> None:
    store = shard_of(open_at(f"redis+sentinel://127.0.0.1:{free_port()}/{NAME}"))
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match="no Sentinel named a master"):
        store.next()
    assert time.monotonic() - started < long_timeout_s / 2


def test_server_that_is_no_master_is_not_used(tmp_path: Path, open_at: OpenAt) -> None:
    """Two Sentinels of three may still name a server that was demoted meanwhile."""
    with sentinel_set(tmp_path, replicas=0, down_after_ms=NO_FAILOVER_MS) as servers:
        store = shard_of(open_at(servers.url))
        servers.master().ask("REPLICAOF", "127.0.0.1", free_port())
        with pytest.raises(StoreUnavailable, match="no master any more"):
            store.next()


def test_closed_connection_leaves_no_thread_asking(guarded: SentinelSet) -> None:
    before = set(threading.enumerate())
    connection = open_connection(url_of(guarded))
    shard_of(connection).next()
    connection.close()

    def is_asking() -> bool:
        since = set(threading.enumerate()) - before
        return any(each.name == "sentinels" for each in since)

    wait_until(lambda: not is_asking(), "the thread to end")


@contextmanager
def secure_set(home: Path, certificates: Certificates) -> Iterator[int]:
    """Run a Sentinel and a master that both speak TLS; give the Sentinel's port."""
    master_port, port = free_port(), free_port()
    master = server(home / "master", *tls_options(certificates, master_port))
    conf = home / "sentinel.conf"
    conf.write_text(f"sentinel monitor {NAME} 127.0.0.1 {master_port} 1\n")
    words = [str(conf), "--sentinel", *tls_options(certificates, port)]
    watcher = RedisNode(home / "sentinel", free_port(), words)
    try:
        master.start()
        watcher.start()
        yield port
    finally:
        watcher.kill()
        master.kill()


def test_set_over_tls_speaks_tls_to_sentinels_and_master(
    certificates: Certificates, tmp_path: Path, open_at: OpenAt
) -> None:
    with secure_set(tmp_path, certificates) as port:
        trusting = f"?ssl_ca_certs={certificates.ca}&ssl_check_hostname=no"
        url = f"rediss+sentinel://127.0.0.1:{port}/{NAME}"
        assert shard_of(open_at(url + trusting)).next().pending == 0
        with pytest.raises(StoreUnavailable):
            shard_of(open_at(f"{url}?ssl_ca_certs={certificates.other_ca}")).next()


def test_cluster_over_tls_is_opened_by_the_seed_that_answers(
    certificates: Certificates, tmp_path: Path, open_at: OpenAt
) -> None:
    port = free_port()
    words = [*of_a_cluster(), "--tls-cluster", "yes", *tls_options(certificates, port)]
    with redis_server(tmp_path, *words) as plain:
        take_every_slot(plain)
        url = f"rediss+cluster://127.0.0.1:{free_port()},127.0.0.1:{port}"
        options = f"?ssl_ca_certs={certificates.ca}&ssl_check_hostname=no"
        assert shard_of(open_at(url + options)).next().pending == 0


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("redis+sentinel://h,i", "no service"),
        ("redis+sentinel://h,,i/m", "an empty host"),
        ("redis+sentinel://h:x/m", "a port that is no number"),
        ("redis+sentinel://h:70000/m", "a port that is no number"),
        ("redis+sentinel://h/m/x", "a database that is no number"),
        ("redis+cluster://h/1", "a Cluster has one database"),
        ("redis+cluster://", "an empty host"),
    ],
)
def test_url_of_a_set_says_what_was_expected(text: str, fault: str) -> None:
    found = url_fault(text.replace("://", f"://u:{SECRET.replace('@', '%40')}@"))
    assert found.startswith(f"expected {text.partition('://')[0]}://[USER:PASSWORD@]HOST")
    assert fault in found
    assert "canary" not in found


@pytest.mark.parametrize(
    "text",
    [
        "redis+sentinel://h/m?sentinel_pass=canary",
        "redis+cluster://h?sentinel_password=canary",
        "redis+sentinel://h/m?ssl_ca_certs=/ca.pem",
    ],
)
def test_option_that_the_set_does_not_know_is_refused_without_its_value(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^store\.url: expected") as refused:
        open_connection(text)
    assert "canary" not in str(refused.value)


def test_masked_url_of_a_set_shows_hosts_and_no_password() -> None:
    url = "rediss+sentinel://u:canary@h,i:1/m/2?sentinel_username=s&sentinel_password=canary"
    shown = masked_url(url)
    assert "canary" not in shown
    assert "h,i:1/m/2?sentinel_username=s&sentinel_password=***" in shown


def test_address_of_a_set_is_decoded() -> None:
    found = read_set_address("rediss+sentinel://a%2F:b%40@h,[::1]:7/my%20m/2?sentinel_password=%2B")
    assert found.hosts == (("h", 26379), ("::1", 7))
    assert (found.user, found.password, found.service, found.database) == ("a/", "b@", "my m", 2)
    assert (found.is_tls, found.options) == (True, {"sentinel_password": "+"})


ERRORS: list[tuple[Exception, type[StoreError]]] = [
    (redis.exceptions.ReadOnlyError("You can't write"), StoreUnavailable),
    (redis.exceptions.MovedError("1 h:2"), SlotMigrating),
    (redis.exceptions.AskError("1 h:2"), SlotMigrating),
    (redis.exceptions.TryAgainError("Multiple keys"), SlotMigrating),
    (redis.exceptions.ClusterDownError("Hash slot not served"), StoreUnavailable),
    (redis.exceptions.ClusterError("TTL exhausted."), StoreUnavailable),
    (redis.exceptions.BusyLoadingError("loading"), StoreUnavailable),
    (redis.exceptions.MasterDownError("Link with MASTER is down"), StoreUnavailable),
    (redis.sentinel.MasterNotFoundError("none"), StoreUnavailable),
    (redis.exceptions.OutOfMemoryError("maxmemory"), StoreFull),
    (redis.exceptions.ResponseError("OOM allow-oom flag is not set"), StoreFull),
    (redis.exceptions.ResponseError("BUSY Redis is busy running a script."), StoreUnavailable),
    (redis.exceptions.ResponseError("NOREPLICAS Not enough good replicas"), WritesRefused),
    (redis.exceptions.ResponseError("The user executing the script can't run it"), StoreUnfit),
    (redis.exceptions.ResponseError("ACL failure in script: no permission"), StoreUnfit),
    (redis.exceptions.NoPermissionError("no permissions"), StoreUnfit),
    (redis.exceptions.ResponseError("wrong type"), StoreError),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS)
def test_error_of_the_client_becomes_the_class_that_says_what_to_do(
    error: Exception, expected: type[StoreError]
) -> None:
    with pytest.raises(StoreError) as raised, translated_errors():
        raise error
    assert type(raised.value) is expected
    assert not isinstance(raised.value, CallSuppressed)


def test_master_without_enough_replicas_is_unavailable_until_one_answers(
    tmp_path: Path, open_at: OpenAt
) -> None:
    with sentinel_set(tmp_path, replicas=1, down_after_ms=NO_FAILOVER_MS) as servers:
        store = shard_of(open_at(servers.url))
        servers.master().ask("CONFIG", "SET", "min-replicas-to-write", 2)
        with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
            store.promote(1)
        servers.master().ask("CONFIG", "SET", "min-replicas-to-write", 1)
        store.promote(1)


Said = list[tuple[int, sentinel.Address | None]]
Hear = Callable[[Said], sentinel.Address]
AWAY = (-1, None)
A, B, C = ("a", 1), ("b", 1), ("c", 1)


@pytest.fixture
def hear(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hear]:
    """Let a finder hear what its three Sentinels say, and return whom it follows then."""
    finder = sentinel.MasterFinder([("s", 1), ("s", 2), ("s", 3)], NAME, {})
    names: Said = []
    answer = lambda *_: sentinel._SentinelAnswer(*names.pop())  # noqa: E731
    monkeypatch.setattr(sentinel, "_answer_of", answer)
    monkeypatch.setattr(sentinel, "_watch", lambda *_: None)  # the test asks, no thread

    def heard(said: Said) -> sentinel.Address:
        names[:] = said
        finder.ask_again()
        return finder.address()

    yield heard
    finder.close()


def test_sentinel_that_missed_two_failovers_is_not_followed(hear: Hear) -> None:
    """A was replaced by B, and B by A: whoever still names B is behind."""
    said: list[Said] = [[(5, A)] * 3, [(7, A)] * 3, [(6, B), AWAY, AWAY], [(8, B), (7, A), AWAY]]
    assert [hear(each) for each in said] == [A, A, A, B]


def test_most_sentinels_that_name_an_older_master_are_followed_after_a_while(
    hear: Hear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three were set up anew, so that epochs begin again; the third is away."""
    assert hear([(5, A)] * 3) == A
    assert hear([(1, B), (1, B), AWAY]) == A, "they may not have heard of a failover"
    monkeypatch.setattr(sentinel, "OLDER_FOR_S", 0.0)
    assert hear([(1, B), (1, B), AWAY]) == B
    assert hear([(2, C), (1, B), AWAY]) == C, "epochs rise again"


@pytest.mark.parametrize("others", [[AWAY, AWAY], [(2, C), AWAY], [(1, B), (5, A)]])
def test_sentinels_that_name_an_older_master_are_not_followed_unless_most_agree(
    hear: Hear, monkeypatch: pytest.MonkeyPatch, others: Said
) -> None:
    monkeypatch.setattr(sentinel, "OLDER_FOR_S", 0.0)
    assert hear([(5, A)] * 3) == A
    assert hear([(1, B), *others]) == A
