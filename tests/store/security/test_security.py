"""Redis over TLS, as a user with the least rights: log-ins, and what lacks a right is told."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
import pytest
import redis

from duebridge.admin.checks.route_checks import check_workers
from duebridge.config.load import load_config_text
from duebridge.config.secrets import resolve
from duebridge.errors import ConfigError, StoreError, StoreUnavailable, StoreUnfit
from duebridge.producer import Producer
from duebridge.store.registry import Registry
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.fitness import check_fitness
from duebridge.store.workers import KEPT_MS, WorkerRecord, Workers
from duebridge.worker.process import Runner
from duebridge_connectors.memory import MemoryPublisher
from tests.support.certificates import KEY_PASSWORD, Certificates, tls_options
from tests.support.command import Command
from tests.support.desk import Desk
from tests.support.documented import documented, documented_acl
from tests.support.network.proxy import proxied
from tests.support.servers import free_port, redis_server, wait_until

USER = "duebridge"
PASSWORD = "canary/p@ss:9d27%?x"  # noqa: S105 - must not come out again


class SecureRedis(NamedTuple):
    """Two servers: `mtls` takes only clients with a certificate. `open` is without TLS."""

    tls: int
    mtls: int
    open: int


BY_PASSWORD, BY_CERTIFICATE = "Redis, user and password", "Redis, client certificate"
WRONG = "canary-wrong"
CONFIG = """\
version: 1
store: {{url: "{url}"}}
brokers:
  here: {{type: memory}}
routes:
  reminders: {{target: {{broker: here, topic: reminders}}}}
"""

pytestmark = pytest.mark.usefixtures("no_secret_is_logged")
UrlOf = Callable[..., str]
OpenAt = Callable[..., Connection]


@pytest.fixture(scope="module")
def store(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureRedis]:
    tls, mtls = free_port(), free_port()
    with ExitStack() as stack:
        for port, demand in ((mtls, "yes"), (tls, "no")):
            options = tls_options(certificates, port, demand)
            opened = stack.enter_context(redis_server(tmp_path_factory.mktemp("redis"), *options))
            with redis.Redis(port=opened) as admin:
                admin.config_set("appendonly", "yes")
                words = ("ACL", "SETUSER", USER, "on", f">{PASSWORD}", *documented_acl())
                admin.execute_command(*words)
        yield SecureRedis(tls, mtls, opened)


@contextmanager
def with_right(store: SecureRedis, right: str) -> Iterator[None]:
    """Give the user a right, `+command`, or take one, `-command`, for a while."""
    with redis.Redis(port=store.open) as admin:
        admin.execute_command("ACL", "SETUSER", USER, right)
        try:
            yield
        finally:
            opposite = "+-"[right[0] == "+"] + right[1:]
            admin.execute_command("ACL", "SETUSER", USER, opposite)


@pytest.fixture
def url_of(
    store: SecureRedis, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> UrlOf:
    """Return what the documentation shows, at another port or under another host name."""

    def url_of(
        title: str = BY_PASSWORD, port: int = 0, host: str = "localhost", password: str = PASSWORD
    ) -> str:
        port = port or (store.mtls if title == BY_CERTIFICATE else store.tls)
        monkeypatch.setenv("REDIS_PASSWORD", quote(password, safe=""))
        return resolve(documented(title, certificates, f"{host}:{port}")["url"])

    return url_of


@pytest.fixture
def connection(open_at: OpenAt, url_of: UrlOf) -> Connection:
    return open_at(url_of())


@pytest.mark.parametrize("title", [BY_PASSWORD, BY_CERTIFICATE])
def test_connect_as_documented_is_that_user(title: str, open_at: OpenAt, url_of: UrlOf) -> None:
    connection = open_at(url_of(title))
    connection.load_scripts()
    with pytest.raises(redis.exceptions.NoPermissionError, match="run the 'flushall'"):
        connection.client.flushall()


def test_connect_with_a_locked_key_and_its_password_answers(
    open_at: OpenAt, url_of: UrlOf, certificates: Certificates
) -> None:
    url = url_of(BY_CERTIFICATE).replace(certificates.client_key, certificates.locked_key)
    open_at(f"{url}&ssl_password={KEY_PASSWORD}").load_scripts()


def test_connect_without_the_check_of_the_name_answers_under_another_name(
    open_at: OpenAt, url_of: UrlOf
) -> None:
    open_at(f"{url_of(host='127.0.0.1')}&ssl_check_hostname=no").load_scripts()


def test_connection_with_an_outstanding_reply_is_reset(
    open_at: OpenAt, store: SecureRedis, url_of: UrlOf
) -> None:
    with proxied(store.tls) as proxy:
        connection = open_at(url_of(port=proxy.port), 1.0)
        connection.load_scripts(30.0)
        ends = len(proxy.ends)
        proxy.hold()
        with pytest.raises(StoreUnavailable):
            connection.load_scripts()
        wait_until(lambda: set(proxy.ends[ends:]) == {"reset"}, proxy.ends)


def test_worker_of_the_least_user_delivers_and_hears_hints(
    connection: Connection, store: SecureRedis
) -> None:
    config = load_config_text(CONFIG.format(url="redis://elsewhere"), "duebridge.yaml")
    publisher = MemoryPublisher()
    assert check_fitness(connection) == []
    runner = Runner(config, connection, {"here": publisher})
    (view,) = runner.worker.views
    wake = view.store.shard.wake
    runner.start()
    try:
        with redis.Redis(port=store.open) as admin:
            wait_until(lambda: admin.pubsub_numsub(wake)[0][1] == 1, "the worker to listen")
        Producer(config, connection).schedule("reminders", b"hello", delay="1ms")
        assert publisher.deliveries_arrive(1, within_s=60)
    finally:
        runner.drain()


def test_worker_record_of_the_least_user_is_written_read_and_removed(
    store: SecureRedis, open_at: OpenAt, url_of: UrlOf
) -> None:
    workers = Workers(open_at(url_of()), "duebridge")
    worker = WorkerRecord("id", "host", 1, "1.0", 1, 1)
    workers.write(worker)
    assert workers.read_if_allowed() == [worker]
    with with_right(store, "-mget"):
        assert workers.read_if_allowed() is None
    workers.write(msgspec.structs.replace(worker, at_ms=KEPT_MS + 2))
    workers.remove("id")
    assert workers.read_if_allowed() == []


def test_read_worker_records_without_the_rights_that_came_after_0_2_tells_so_of_none_written(
    store: SecureRedis, open_at: OpenAt, url_of: UrlOf
) -> None:
    """As after an upgrade: `doctor` then names the rights, and calls no worker frozen."""
    connection = open_at(url_of())
    workers = Workers(connection, "duebridge")
    config = load_config_text(CONFIG.format(url=url_of()), "duebridge.yaml")
    with with_right(store, "-mget"), with_right(store, "-set"):
        with pytest.raises(StoreUnfit):
            workers.write(WorkerRecord("id", "host", 1, "1.0", 1, 1))
        [finding] = check_workers(config, connection)
    assert finding.found == "the store's user may not read what the workers say of themselves"


def test_user_without_a_right_is_told_which(
    store: SecureRedis, open_at: OpenAt, url_of: UrlOf
) -> None:
    refused = pytest.raises(StoreUnfit, match="no permissions to run the 'info'")
    with with_right(store, "-info"), refused:
        check_fitness(open_at(url_of()))


def test_route_is_removed_only_by_who_may_delete(
    store: SecureRedis, open_at: OpenAt, url_of: UrlOf
) -> None:
    connection = open_at(url_of())
    desk = Desk(connection, "duebridge")
    desk.pending("waits")
    registry = Registry(connection, "duebridge")
    registry.open_route("route", 1)
    refused = pytest.raises(StoreUnfit, match=r"refused us: .*needs the right \+unlink")
    with with_right(store, "-unlink"), refused:
        registry.remove_route("route", 1)
    assert desk.store.next().pending == 1
    registry.remove_route("route", 1)
    assert desk.store.next().envelopes == 0
    assert "route" not in registry.routes()


@pytest.mark.parametrize(
    ("where", "other_ca", "error", "message"),
    [
        ({"password": WRONG}, False, StoreUnfit, "invalid username-password pair"),
        ({}, True, StoreUnavailable, r"certificate verify failed.*the CA file"),
        ({"host": "127.0.0.1"}, False, StoreUnavailable, r"not valid for '127\.0\.0\.1'"),
        # Redis 8 resets the connection without a word
        ({"port": "mtls"}, False, StoreUnavailable, r"certificate of ours|reset by peer"),
    ],
    ids=["password", "authority", "host", "no-certificate"],
)
def test_connect_in_a_wrong_way_is_refused_with_the_reason(
    where: dict[str, Any],
    other_ca: bool,
    error: type[StoreError],
    message: str,
    open_at: OpenAt,
    url_of: UrlOf,
    store: SecureRedis,
    certificates: Certificates,
) -> None:
    if "port" in where:
        where = {"port": store.mtls}
    url = url_of(**where)
    if other_ca:
        url = url.replace(certificates.ca, certificates.other_ca)
    with pytest.raises(error, match=message):
        open_at(url).load_scripts()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("ssl_ca_certs=/nowhere", "ssl_ca_certs: /nowhere: No such file"),
        ("ssl_ca_cert=/nowhere", "expected the options db, ssl_ca_certs"),
        ("ssl_keyfile={client_key}", "ssl_keyfile: has no effect without ssl_certfile"),
        ("ssl_certfile={client}&ssl_keyfile={server_key}", "these are not a pair"),
        ("ssl_certfile={client}&ssl_keyfile={locked_key}", "these cannot be read"),
        ("ssl_certfile={client}&ssl_keyfile={locked_key}&ssl_password=canary", "cannot be read"),
        ("ssl_ca_certs={client_key}", "expected certificates in PEM"),
    ],
)
def test_url_with_a_file_of_no_use_is_refused(
    given: str, message: str, certificates: Certificates
) -> None:
    query = given.format(**certificates._asdict())
    with pytest.raises(ConfigError, match=r"^store\.url: ") as refused:
        open_connection(f"rediss://user:{PASSWORD[:6]}@localhost/0?{query}")
    assert message in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "code"), [({}, 0), ({"password": WRONG}, 3), ({"host": "127.0.0.1"}, 3)]
)
def test_command_on_a_secure_store_ends_with_the_right_code(
    wrong: dict[str, str], code: int, url_of: UrlOf, tmp_path: Path
) -> None:
    done = Command(tmp_path, url_of(**wrong), CONFIG)("stats")
    assert done.code == code
    assert "canary" not in done.out + done.err
    assert "Traceback" not in done.err
